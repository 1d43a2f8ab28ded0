-- mark: counts in records, one after the other
-- KEYS: sessions stats records…
-- ARGV: session number, then per item: record
-- ANSWER: OK value | AGAIN value | STALE | NOSESSION
-- record is a place among the records.
local sessions, stats = unpack(KEYS)
local records = {unpack(KEYS, 3)}
call('HDEL', sessions, '')
local answer = session_check(sessions, ARGV[1], ARGV[2])
if answer then
  return answer
end
local now = now_us()
local sum = 0
for i = 3, #ARGV do
  local record = records[tonumber(ARGV[i])]
  sum = sum + call('HINCRBY', record, 'n', 1)
  call('PEXPIRE', record, 3600000)
end
call('HINCRBY', stats, 'marked', #ARGV - 2)
session_store(sessions, ARGV[1], ARGV[2], now, int(sum))
return {'OK', int(sum)}
