-- wake: passes a wake-up on to another process
-- KEYS: sessions wake
-- ARGV: none
-- ANSWER: OK
local sessions, wake = unpack(KEYS)
call('HDEL', sessions, '')
wake_up(wake)
return {'OK'}
