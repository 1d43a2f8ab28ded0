-- extend: moves leases' expiries later, one answer per item; safe to run twice
-- KEYS: sessions due processing dead done leases policy stats
-- ARGV: lease_ms, then per item: id token
-- ANSWER: OK codes lease_ms
-- CODES: o extended; c cancelled; 1 2 3 4 lost: in due, processing, dead, done; 0 gone
-- A lease_ms of 0 is the published one. An expiry never moves back, and no lease is made.
local sessions, due, processing, dead, done, leases, policy, stats = unpack(KEYS)
call('HDEL', sessions, '')
local ceil_ms = math.ceil(now_us() / 1000)
local lease = tonumber(ARGV[1])
if lease == 0 then
  lease = published(policy, 'lease_ms')
end
local expiry = int(ceil_ms + lease)
local ids = {}
for i = 2, #ARGV, 2 do
  ids[#ids + 1] = ARGV[i]
end
local codes, scores, strangers, stranger_ids = {}, {}, {}, {}
for i, current in ipairs(call('HMGET', leases, unpack(ids))) do
  local token = ARGV[2 * i + 1]
  if current == token then
    codes[i] = 'o'
    append(scores, expiry, ids[i])
  elseif current == '!' .. token then
    codes[i] = 'c'
  else
    strangers[#strangers + 1], stranger_ids[#stranger_ids + 1] = i, ids[i]
  end
end
for i, place in ipairs(places(stranger_ids, due, processing, dead, done)) do
  codes[strangers[i]] = place
end
if #scores > 0 then
  call('ZADD', processing, 'XX', 'GT', unpack(scores))
end
if #stranger_ids > 0 then
  call('HINCRBY', stats, 'refused_extends', #stranger_ids)
end
return {'OK', table.concat(codes), lease}
