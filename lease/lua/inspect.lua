-- inspect: everything about jobs by ID; writes nothing
-- KEYS: due processing dead done jobs leases counts errors holders
-- ARGV: id...
-- ANSWER: OK now_ms, then per job: place score record counts errors token holder
local due, processing, dead, done, jobs, leases, counts, errors, holders = unpack(KEYS)
local out = {'OK', math.floor(now_us() / 1000)}
local zsets = {due, processing, dead, done}
for i, place in ipairs(places(ARGV, due, processing, dead, done)) do
  local id, at = ARGV[i], 2 + 7 * (i - 1)
  local zset, token = zsets[tonumber(place)], call('HGET', leases, id) or ''
  out[at + 1], out[at + 2] = place, zset and call('ZSCORE', zset, id) or ''
  out[at + 3], out[at + 4] = call('HGET', jobs, id) or '', call('HGET', counts, id) or ''
  out[at + 5], out[at + 6], out[at + 7] = call('HGET', errors, id) or '', token, holder_of(holders, token)
end
return out
