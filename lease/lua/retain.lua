-- retain: forgets the dead jobs that are more than the queue keeps, or older; the oldest first
-- KEYS: sessions dead jobs counts errors policy stats
-- ARGV: n
-- ANSWER: OK forgotten more
-- more is 1 where another call would forget jobs too.
local sessions, dead, jobs, counts, errors, policy, stats = unpack(KEYS)
call('HDEL', sessions, '')
local keep, age = published(policy, 'dead_keep', 'dead_age_ms')
if not keep and not age then
  return {'OK', 0, 0}
end
local n = tonumber(ARGV[1])
local surplus = keep and call('ZCARD', dead) - keep or 0
local oldest = age and math.floor(now_us() / 1000) - age or -math.huge
local heads, gone, more = call('ZRANGE', dead, 0, n, 'WITHSCORES'), {}, 0
for i = 1, #heads, 2 do
  local place = (i + 1) / 2
  if place > surplus and score(heads[i + 1]) >= oldest then
    break
  elseif place > n then
    more = 1
  else
    gone[place] = heads[i]
  end
end
if #gone > 0 then
  each(1, 'ZREM', dead, gone)
  for _, hash in ipairs({jobs, counts, errors}) do
    each(1, 'HDEL', hash, gone)
  end
  call('HINCRBY', stats, 'trimmed', #gone)
end
return {'OK', #gone, more}
