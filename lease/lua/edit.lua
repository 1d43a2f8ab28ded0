-- edit: writes new records of jobs in due or dead, whole; with redrive, of dead ones, which are due at once then
-- KEYS: sessions due processing dead done jobs counts policy stats wake
-- ARGV: session number redrive, then per item: id size headers old record
-- ANSWER: OK codes | AGAIN codes | STALE | NOSESSION
-- CODES: o written; n its record is not old any more; t payload, h headers larger than the published limit;
--   1 2 4 in due (where it was to be redriven), processing, done; 0 gone
-- An empty old is any record. size is the payload's, headers that of the headers. redrive is 1 or 0.
-- Where a limit has refused a record the codes are followed by the limits of payloads and headers, - where there is none, each
-- after a blank.
local sessions, due, processing, dead, done, jobs, counts, policy, stats, wake = unpack(KEYS)
call('HDEL', sessions, '')
local answer = session_check(sessions, ARGV[1], ARGV[2])
if answer then
  return answer
end
local now = now_us()
local floor_ms = math.floor(now / 1000)
local redrive = ARGV[3] == '1'
local max_payload, max_headers = published(policy, 'payload_limit', 'header_limit')
local ids = {}
for i = 4, #ARGV, 5 do
  ids[#ids + 1] = ARGV[i]
end

local codes, records, written, moved, refused = {}, {}, {}, {}, false
for i, place in ipairs(places(ids, due, processing, dead, done)) do
  local id, at = ids[i], 5 * i - 1
  local size, headers, old, record = tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), ARGV[at + 3], ARGV[at + 4]
  if redrive and written[id] then
    place = '1'
  end
  codes[i] = place
  if place == '3' or place == '1' and not redrive then
    if old ~= '' and (written[id] or call('HGET', jobs, id)) ~= old then
      codes[i] = 'n'
    elseif max_payload and size > max_payload then
      codes[i], refused = 't', true
    elseif max_headers and headers > max_headers then
      codes[i], refused = 'h', true
    else
      codes[i], written[id] = 'o', record
      append(records, id, record)
      if redrive then
        moved[#moved + 1] = id
      end
    end
  end
end
if #records > 0 then
  each(2, 'HSET', jobs, records)
  call('HINCRBY', stats, 'edited', #records / 2)
end
if #moved > 0 then
  local numbers, scores, fresh = call('HMGET', counts, unpack(moved)), {}, {}
  for i, id in ipairs(moved) do
    local _, _, r, own = counts_read(numbers[i])
    append(fresh, id, counts_write(0, 0, r + 1, own))
    append(scores, int(floor_ms), id)
  end
  each(1, 'ZREM', dead, moved)
  each(2, 'HSET', counts, fresh)
  each(2, 'ZADD', due, scores)
  call('HINCRBY', stats, 'redriven', #moved)
  wake_up(wake)
end
local rest = table.concat(codes)
if refused then
  rest = rest .. ' ' .. (max_payload and int(max_payload) or '-') .. ' ' .. (max_headers and int(max_headers) or '-')
end
session_store(sessions, ARGV[1], ARGV[2], now, rest)
return {'OK', rest}
