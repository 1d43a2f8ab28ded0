-- bury: puts jobs in due into dead, by an operator's hand; counts nothing
-- KEYS: sessions due processing dead done jobs errors stats holders
-- ARGV: session number stub reason, then per item: id
-- ANSWER: OK codes | AGAIN codes | STALE | NOSESSION
-- CODES: o buried; 2 3 4 not due but in processing, dead, done; 0 gone
-- The error line tells the holder of the session, and attempt 0: no start of the job ended so. stub stands in for a
-- record that is missing.
local sessions, due, processing, dead, done, jobs, errors, stats, holders = unpack(KEYS)
call('HDEL', sessions, '')
local answer = session_check(sessions, ARGV[1], ARGV[2])
if answer then
  return answer
end
local now = now_us()
local floor_ms = math.floor(now / 1000)
local ids, codes, moved, scores, twice = {}, {}, {}, {}, {}
for i = 5, #ARGV do
  ids[#ids + 1] = ARGV[i]
end
for i, place in ipairs(places(ids, due, processing, dead, done)) do
  local id = ids[i]
  codes[i] = place
  if twice[id] then
    codes[i] = '3'
  elseif place == '1' then
    codes[i], twice[id] = 'o', true
    moved[#moved + 1] = id
    append(scores, int(floor_ms), id)
  end
end
if #moved > 0 then
  local holder, missing = call('HGET', holders, ARGV[1]) or '', 0
  each(1, 'ZREM', due, moved)
  for _, id in ipairs(moved) do
    error_add(errors, id, floor_ms, 0, holder, ARGV[4], '')
    if call('HEXISTS', jobs, id) == 0 then
      call('HSET', jobs, id, ARGV[3])
      missing = missing + 1
    end
  end
  each(2, 'ZADD', dead, scores)
  for name, count in pairs({buried_by_hand = #moved, died = #moved, missing = missing}) do
    if count > 0 then
      call('HINCRBY', stats, name, count)
    end
  end
end
local rest = table.concat(codes)
session_store(sessions, ARGV[1], ARGV[2], now, rest)
return {'OK', rest}
