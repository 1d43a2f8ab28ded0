-- open: makes a session and names it
-- KEYS: sessions fence holders
-- ARGV: random holder
-- ANSWER: OK session
local sessions, fence, holders = unpack(KEYS)
call('HDEL', sessions, '')
local now = now_us()
local last = tonumber(call('GET', fence) or '0')
local advanced = int(math.max(now, last + 1))
local session = advanced .. '-' .. ARGV[1]
call('SET', fence, advanced)
call('HSET', holders, session, ARGV[2])
session_store(sessions, session, '0', now, '')
return {'OK', session}
