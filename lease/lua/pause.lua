-- pause: pauses a queue, so that claims give nothing out, or has it go on
-- KEYS: sessions policy wake
-- ARGV: session number until
-- ANSWER: OK what | AGAIN what | STALE | NOSESSION
-- CODES: p it was paused before; n it was not; e the time that was asked for has passed: nothing has changed
-- until is '' for until it is resumed, a delay in ms, @ and a time in ms on the server's clock, or resume. Of the policy's
-- HASH it has a field of its own, paused_until_ms, which is 0 where no end is set, and which nobody publishes.
local sessions, policy, wake = unpack(KEYS)
call('HDEL', sessions, '')
local answer = session_check(sessions, ARGV[1], ARGV[2])
if answer then
  return answer
end
local now, asked = now_us(), ARGV[3]
local now_ms = math.floor(now / 1000)
local what = pause_left(published(policy, 'paused_until_ms'), now_ms) and 'p' or 'n'
if asked == 'resume' then
  call('HDEL', policy, 'paused_until_ms')
  if what == 'p' then
    wake_up(wake)
  end
else
  local until_ms = 0
  if string.sub(asked, 1, 1) == '@' then
    until_ms = tonumber(string.sub(asked, 2))
  elseif asked ~= '' then
    until_ms = math.ceil(now / 1000) + tonumber(asked)
  end
  if pause_left(until_ms, now_ms) then
    call('HSET', policy, 'paused_until_ms', int(until_ms))
  else
    what = 'e'
  end
end
session_store(sessions, ARGV[1], ARGV[2], now, what)
return {'OK', what}
