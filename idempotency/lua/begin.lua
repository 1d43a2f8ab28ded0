-- begin: takes a record for an effect, or says what became of it
-- KEYS: sessions fence leases processing records…
-- ARGV: session number effect print lease_ms retention_ms owner of id token effects
-- ANSWER: OK what | OK what result | AGAIN what | STALE | NOSESSION
-- WHAT: f owner since; u owner since; d since; w wait_ms; p; n; c; m; b
-- f fresh; u in doubt, and taken over; d done; w in flight for wait_ms; p started for another request; n id's lease has
-- another token; c id's job is cancelled; m too many effects; b the effect's field cannot be read. An owner '' is made
-- here; one that is given is the token of id's lease: whoever had the record before is over, and it is taken over where
-- the effect is done, too. With an id the record lasts as long as its lease, else for lease_ms; it lives for twice that
-- at least.
local sessions, fence, leases, processing = unpack(KEYS)
local records = {unpack(KEYS, 5)}
call('HDEL', sessions, '')
local answer = session_check(sessions, ARGV[1], ARGV[2])
if answer then
  return answer
end
local record = records[1]
local now = now_us()
local now_ms, effect, print = math.floor(now / 1000), 'e:' .. ARGV[3], ARGV[4]
local owner, of, id, held = ARGV[7], ARGV[8], ARGV[9], ARGV[10]
local what, result

local token = id ~= '' and call('HGET', leases, id)
local fields = call('HMGET', record, 'owner', 'until', 'of', effect)
local anew = of ~= '' and fields[1] and fields[3] ~= of -- the record is of a job that had this ID before
if anew then
  fields = {false, false, false, false}
end
local state, since, was, done
if fields[4] then
  state, since, was, done = parsed(fields[4])
end
local ends = tonumber(fields[2] or '0') or 0
local lasts = math.ceil(now / 1000) + tonumber(ARGV[5])
if id ~= '' then
  lasts = tonumber(call('ZSCORE', processing, id) or '') or lasts
end
local lives = int(math.max(tonumber(ARGV[6]), 2 * (lasts - now_ms)))
if id ~= '' and token == '!' .. held then
  what = 'c'
elseif id ~= '' and token ~= held then
  what = 'n'
elseif fields[4] and not state then
  what = 'b'
elseif state and was ~= print then
  what = 'p'
elseif state == 'd' then
  what, result = 'd ' .. since, done
  if owner ~= '' then
    call('HSET', record, 'owner', owner, 'until', int(lasts))
    keep_for(record, lives)
  end
elseif fields[1] and owner == '' and ends > now_ms then
  what = 'w ' .. int(ends - now_ms)
elseif not state and not anew and call('HLEN', record) - 3 >= tonumber(ARGV[11]) then
  what = 'm'
else
  if anew then
    call('DEL', record)
  end
  if owner == '' then
    local number = math.max(now, (tonumber(call('GET', fence) or '0') or 0) + 1)
    call('SET', fence, int(number))
    owner = int(number) .. ':' .. ARGV[1] .. ':' .. ARGV[2]
  end
  call('HSET', record, 'owner', owner, 'until', int(lasts), 'of', of)
  if state then
    what = 'u ' .. owner .. ' ' .. since
  else
    call('HSET', record, effect, 's ' .. int(now_ms) .. ' ' .. print)
    what = 'f ' .. owner .. ' ' .. int(now_ms)
  end
  keep_for(record, lives)
end
session_store(sessions, ARGV[1], ARGV[2], now, what)
return {'OK', what, result}
