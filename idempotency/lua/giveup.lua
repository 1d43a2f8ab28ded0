-- giveup: ends what an owner has started without a result
-- KEYS: sessions records…
-- ARGV: session number effect owner happened
-- ANSWER: OK code | AGAIN code | STALE | NOSESSION
-- CODES: o given up; n somebody else's, or not started
-- happened is `no` where the effect certainly did not happen, which removes it, or `maybe`, which leaves it in doubt. A
-- record of one effect has no owner then, so that a beat that is on its way moves nothing any more.
local sessions = unpack(KEYS)
local records = {unpack(KEYS, 2)}
call('HDEL', sessions, '')
local answer = session_check(sessions, ARGV[1], ARGV[2])
if answer then
  return answer
end
local record = records[1]
local now, code = now_us(), 'n'
local fields = call('HMGET', record, 'owner', 'e:' .. ARGV[3])
if fields[1] == ARGV[4] and fields[2] and parsed(fields[2]) == 's' then
  code = 'o'
  if ARGV[5] == 'no' then
    call('HDEL', record, 'e:' .. ARGV[3])
  end
  if call('HLEN', record) <= 3 then
    call('DEL', record)
  elseif ARGV[3] == '' then
    call('HSET', record, 'owner', '-', 'until', '0')
  else
    call('HSET', record, 'until', '0')
  end
end
session_store(sessions, ARGV[1], ARGV[2], now, code)
return {'OK', code}
