-- count: adds one to a counter
-- KEYS: sessions stats
-- ARGV: session number field
-- ANSWER: OK value | AGAIN value | STALE | NOSESSION
local sessions, stats = unpack(KEYS)
call('HDEL', sessions, '')
local answer = session_check(sessions, ARGV[1], ARGV[2])
if answer then
  return answer
end
local now = now_us()
local value = int(call('HINCRBY', stats, ARGV[3], 1))
session_store(sessions, ARGV[1], ARGV[2], now, value)
return {'OK', value}
