-- commit: makes a started effect done, with its result
-- KEYS: sessions records…
-- ARGV: session number effect owner retention_ms result
-- ANSWER: OK code | AGAIN code | STALE | NOSESSION
-- CODES: o done; n somebody else's, or not started
-- A repeat with the same result is o too.
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
if fields[1] == ARGV[4] and fields[2] then
  local state, since, print, result = parsed(fields[2])
  if state == 's' then
    local done = 'd ' .. since .. ' ' .. print .. ' ' .. int(math.floor(now / 1000)) .. '\n' .. ARGV[6]
    call('HSET', record, 'e:' .. ARGV[3], done, 'until', '0') -- a beat that is still on its way moves nothing any more
    keep_for(record, ARGV[5])
    code = 'o'
  elseif state == 'd' and result == ARGV[6] then
    code = 'o'
  end
end
session_store(sessions, ARGV[1], ARGV[2], now, code)
return {'OK', code}
