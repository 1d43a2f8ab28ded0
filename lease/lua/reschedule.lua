-- reschedule: gives jobs in due another due time
-- KEYS: sessions due processing dead done policy stats wake
-- ARGV: session number, then per item: id when
-- ANSWER: OK codes | AGAIN codes | STALE | NOSESSION
-- CODES: o it is so; l delay longer than the published limit; 2 3 4 not due but in processing, dead, done; 0 gone
-- when is a delay in ms, @ and a time in ms, or now: due at once, and left in its place in the order where it is due.
-- Where a delay is too long the codes are followed by a blank and the limit in ms.
local sessions, due, processing, dead, done, policy, stats, wake = unpack(KEYS)
call('HDEL', sessions, '')
local answer = session_check(sessions, ARGV[1], ARGV[2])
if answer then
  return answer
end
local now = now_us()
local floor_ms, ceil_ms = math.floor(now / 1000), math.ceil(now / 1000)
local max_delay, refused = published(policy, 'max_delay_ms'), false
local ids, whens = {}, {}
for i = 3, #ARGV, 2 do
  ids[#ids + 1], whens[#whens + 1] = ARGV[i], ARGV[i + 1]
end

local codes, scores, at, earliest = {}, {}, {}, nil
for i, place in ipairs(places(ids, due, processing, dead, done)) do
  local id, when = ids[i], whens[i]
  codes[i] = place
  if place == '1' then
    local time = floor_ms
    if when == 'now' then
      time = math.min(time, at[id] or score(call('ZSCORE', due, id)))
    elseif string.sub(when, 1, 1) == '@' then
      time = tonumber(string.sub(when, 2))
    elseif when ~= '0' then
      time = ceil_ms + tonumber(when)
    end
    if time - ceil_ms > max_delay then
      codes[i], refused = 'l', true
    else
      codes[i], at[id] = 'o', time
      append(scores, int(time), id)
      if not earliest or time < earliest then
        earliest = time
      end
    end
  end
end
if earliest then
  local head = call('ZRANGE', due, 0, 0, 'WITHSCORES')
  each(2, 'ZADD', due, scores)
  call('HINCRBY', stats, 'rescheduled', #scores / 2)
  if earliest <= floor_ms or earliest < score(head[2]) then
    wake_up(wake)
  end
end
local rest = table.concat(codes)
if refused then
  rest = rest .. ' ' .. int(max_delay)
end
session_store(sessions, ARGV[1], ARGV[2], now, rest)
return {'OK', rest}
