-- list: IDs of a place in its order, from behind a job on; writes nothing
-- KEYS: due processing dead done
-- ARGV: place n from to score id
-- ANSWER: OK now_ms more, then per job: id score
-- Only scores from `from` to `to`, both included; -inf and +inf are no bounds. score and id are of the job behind which
-- it goes on, wherever that is by now; an empty score begins. However many jobs there are, it looks at few more than n.
local due, processing, dead, done = unpack(KEYS)
local place = ({due = due, processing = processing, dead = dead, done = done})[ARGV[1]]
local n, from, to, at, id = tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[5], ARGV[6]

-- follows compares IDs byte by byte, as a ZSET does; Lua's own comparison goes by the server's language.
local function follows(a, b)
  for i = 1, math.min(#a, #b) do
    local one, two = string.byte(a, i), string.byte(b, i)
    if one ~= two then
      return one > two
    end
  end
  return #a > #b
end

-- below is how many have a lower score.
local function below(zset, bound)
  return call('ZCOUNT', zset, '-inf', '(' .. bound)
end

-- behind is the rank that follows a job, also where it is not there any more: then it is looked for where it would stand
-- among those of its score, in halves.
local function behind(zset, bound, member)
  local now_at = call('ZSCORE', zset, member)
  if now_at and score(now_at) == score(bound) then
    return call('ZRANK', zset, member) + 1
  end
  local low = below(zset, bound)
  local high = low + call('ZCOUNT', zset, bound, bound)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if follows(call('ZRANGE', zset, middle, middle)[1], member) then
      high = middle
    else
      low = middle + 1
    end
  end
  return low
end

local first = 0
if from ~= '-inf' then
  first = below(place, from)
end
if at ~= '' then
  first = math.max(first, behind(place, at, id))
end
local found, last = call('ZRANGE', place, first, first + n, 'WITHSCORES'), score(to)
if to == '+inf' then
  last = math.huge
end
local out = {'OK', math.floor(now_us() / 1000), 0}
for i = 1, #found, 2 do
  if score(found[i + 1]) > last then
    break
  end
  if i > 2 * n then
    out[3] = 1
    break
  end
  append(out, found[i], found[i + 1])
end
return out
