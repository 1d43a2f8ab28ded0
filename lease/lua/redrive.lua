-- redrive: puts dead jobs back to due at once, with fresh counters: by ID, or the oldest up to a bound
-- KEYS: sessions due processing dead done counts stats wake
-- ARGV: session number n bound, then per item: id
-- ANSWER: OK what | AGAIN what | STALE | NOSESSION
-- WHAT: bound more codes
-- CODES: o redriven; 1 2 4 not dead but in due, processing, done; 0 gone
-- Without IDs: the n that died first, of those that died at bound or before; bound '' is now, and is answered.
local sessions, due, processing, dead, done, counts, stats, wake = unpack(KEYS)
call('HDEL', sessions, '')
local answer = session_check(sessions, ARGV[1], ARGV[2])
if answer then
  return answer
end
local now = now_us()
local floor_ms = math.floor(now / 1000)
local bound = ARGV[4] == '' and int(floor_ms) or ARGV[4]
local ids, codes, moved = {}, {}, {}
if #ARGV == 4 then
  ids = call('ZRANGEBYSCORE', dead, '-inf', bound, 'LIMIT', 0, tonumber(ARGV[3]))
else
  for i = 5, #ARGV do
    ids[#ids + 1] = ARGV[i]
  end
end
local twice = {}
for i, place in ipairs(places(ids, due, processing, dead, done)) do
  codes[i] = place
  if twice[ids[i]] then
    codes[i] = '1'
  elseif place == '3' then
    codes[i], twice[ids[i]] = 'o', true
    moved[#moved + 1] = ids[i]
  end
end
if #moved > 0 then
  local numbers, scores, fresh = call('HMGET', counts, unpack(moved)), {}, {}
  for i, id in ipairs(moved) do
    local _, _, r, own = counts_read(numbers[i])
    append(fresh, id, counts_write(0, 0, r + 1, own))
    append(scores, int(floor_ms), id)
  end
  each(1, 'ZREM', dead, moved)
  each(2, 'HSET', counts, fresh)
  each(2, 'ZADD', due, scores)
  call('HINCRBY', stats, 'redriven', #moved)
  wake_up(wake)
end
local more = #ARGV == 4 and call('ZCOUNT', dead, '-inf', bound) > 0 and '1' or '0'
local what = bound .. ' ' .. more .. ' ' .. table.concat(codes)
session_store(sessions, ARGV[1], ARGV[2], now, what)
return {'OK', what}
