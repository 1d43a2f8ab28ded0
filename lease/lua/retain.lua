-- retain: forgets the dead jobs that are more than the queue keeps, or older, and the finished ones; the oldest first
-- KEYS: sessions dead done jobs counts errors results policy stats
-- ARGV: n
-- ANSWER: OK forgotten finished more
-- forgotten are the dead jobs, finished those that were in done, up to n of each. more is 1 where another call would forget
-- jobs too.
local sessions, dead, done, jobs, counts, errors, results, policy, stats = unpack(KEYS)
call('HDEL', sessions, '')
local keep, age, done_keep = published(policy, 'dead_keep', 'dead_age_ms', 'done_keep')
local n, now_ms, more = tonumber(ARGV[1]), math.floor(now_us() / 1000), 0

-- forget removes up to n jobs from a place: those that are more than are kept, or have been there since over, or before.
local function forget(place, kept, over, counter)
  local surplus = kept and call('ZCARD', place) - kept or 0
  local heads, gone = call('ZRANGE', place, 0, n, 'WITHSCORES'), {}
  for i = 1, #heads, 2 do
    local rank = (i + 1) / 2
    if rank > surplus and not (over and score(heads[i + 1]) <= over) then
      break
    elseif rank > n then
      more = 1
    else
      gone[rank] = heads[i]
    end
  end
  if #gone > 0 then
    each(1, 'ZREM', place, gone)
    call('HINCRBY', stats, counter, #gone)
  end
  return gone
end

local forgotten, finished = {}, {}
if keep or age then
  forgotten = forget(dead, keep, age and now_ms - age - 1, 'trimmed')
  for _, hash in ipairs({jobs, counts, errors}) do
    each(1, 'HDEL', hash, forgotten)
  end
end
if call('ZCARD', done) > 0 then
  finished = forget(done, done_keep, done_over(policy, now_ms), 'forgotten')
  each(1, 'HDEL', results, finished)
end
return {'OK', #forgotten, #finished, more}
