-- close: forgets sessions that their process will not use again
-- KEYS: sessions holders
-- ARGV: session...
-- ANSWER: OK count
local sessions, holders = unpack(KEYS)
call('HDEL', sessions, '')
call('HDEL', holders, unpack(ARGV))
return {'OK', call('HDEL', sessions, unpack(ARGV))}
