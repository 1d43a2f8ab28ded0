-- trim: forgets sessions that no call has used for a while, a few at a time
-- KEYS: sessions holders
-- ARGV: cursor unused_ms count
-- ANSWER: OK cursor removed
local sessions, holders = unpack(KEYS)
call('HDEL', sessions, '')
local oldest = math.floor(now_us() / 1000) - tonumber(ARGV[2])
local page = call('HSCAN', sessions, ARGV[1], 'COUNT', ARGV[3])
local gone = {}
for i = 1, #page[2], 2 do
  local used = string.match(page[2][i + 1], '^%d+ (%d+)')
  if not used or tonumber(used) < oldest then
    gone[#gone + 1] = page[2][i]
  end
end
for i = 1, #gone, 1000 do
  local last = math.min(i + 999, #gone)
  call('HDEL', holders, unpack(gone, i, last))
  call('HDEL', sessions, unpack(gone, i, last))
end
return {'OK', page[1], #gone}
