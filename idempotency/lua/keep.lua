-- keep: moves the ends of owners' leases later, one answer per record; safe to run twice
-- KEYS: sessions records…
-- ARGV: lease_ms retention_ms, then per record: owner
-- ANSWER: OK codes
-- CODES: o moved; n somebody else's
local sessions = unpack(KEYS)
local records = {unpack(KEYS, 2)}
call('HDEL', sessions, '')
local ends, codes = int(math.ceil(now_us() / 1000) + tonumber(ARGV[1])), {}
for i = 1, #records do
  local record = records[i]
  codes[i] = 'n'
  local fields = {false, false}
  if call('TYPE', record).ok == 'hash' then
    fields = call('HMGET', record, 'owner', 'until')
  end
  if fields[1] == ARGV[2 + i] and fields[2] ~= '0' then
    codes[i] = 'o'
    if (tonumber(fields[2] or '0') or 0) < tonumber(ends) then
      call('HSET', record, 'until', ends)
    end
    keep_for(record, ARGV[2])
  end
end
return {'OK', table.concat(codes)}
