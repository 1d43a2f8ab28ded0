-- seal: says what the call before answered, or that it never ran, and keeps it from ever running
-- KEYS: sessions
-- ARGV: session number
-- ANSWER: OK what | AGAIN what | STALE | NOSESSION
-- WHAT: r and the answer of the call before, or n where it never ran
local sessions = unpack(KEYS)
call('HDEL', sessions, '')
local answer, rest = session_check(sessions, ARGV[1], ARGV[2])
if answer then
  return answer
end
local last = string.match(call('HGET', sessions, ARGV[1]), '^%d+')
local what = 'n'
if tonumber(last) == tonumber(ARGV[2]) - 1 then
  what = 'r' .. rest
end
session_store(sessions, ARGV[1], ARGV[2], now_us(), what)
return {'OK', what}
