-- extend: moves leases' expiries later, one answer per item; safe to run twice
-- KEYS: sessions due processing dead done leases policy stats records…
-- ARGV: lease_ms, then per record: item owner ttl_ms mark n field value, then per item: id token
-- ANSWER: OK codes lease_ms
-- CODES: o extended; c cancelled; 1 2 3 4 lost: in due, processing, dead, done; 0 gone
-- A lease_ms of 0 is the published one. An expiry never moves back, and no lease is made. A record is an item's attached
-- one, by the item's number from 1, and is changed only if the item is extended and the record's owner is the given one:
-- the field that is named by mark, if any, is set to the lease's expiry, the n fields are set, and its time to live unless
-- that is 0: to twice what is left of the lease at least.
local sessions, due, processing, dead, done, leases, policy, stats = unpack(KEYS)
local records = {unpack(KEYS, 9)}
call('HDEL', sessions, '')
local ceil_ms = math.ceil(now_us() / 1000)
local lease = tonumber(ARGV[1])
if lease == 0 then
  lease = published(policy, 'lease_ms')
end
local expiry = int(ceil_ms + lease)
local ids = {}
local attached, first = attachments(records, ARGV, 2)
for i = first, #ARGV, 2 do
  ids[#ids + 1] = ARGV[i]
end
local codes, scores, strangers, stranger_ids = {}, {}, {}, {}
for i, current in ipairs(call('HMGET', leases, unpack(ids))) do
  local token = ARGV[first + 2 * i - 1]
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
for _, one in ipairs(attached) do
  local record = records[one.place]
  if codes[one.item] == 'o' and record_owned(record, one.owner) then
    local ends = call('ZSCORE', processing, ids[one.item])
    if ends and one.mark ~= '' then
      call('HSET', record, one.mark, int(score(ends)))
    end
    if ends and one.ttl ~= '0' then
      one.ttl = int(math.max(tonumber(one.ttl), 2 * (score(ends) - ceil_ms)))
    end
    record_change(record, ARGV, one)
  end
end
if #stranger_ids > 0 then
  call('HINCRBY', stats, 'refused_extends', #stranger_ids)
end
return {'OK', table.concat(codes), lease}
