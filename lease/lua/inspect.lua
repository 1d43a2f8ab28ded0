-- inspect: everything about jobs by ID; writes nothing
-- KEYS: due processing dead done jobs leases counts errors results holders
-- ARGV: head max_bytes, then per item: id
-- ANSWER: OK now_ms, then per job: place score record counts errors token holder result
-- head is how much of each record is told, 0 for all of it, and for results, which only jobs in done have. Fewer jobs are
-- answered, the first ones and at least one, where their records and results exceed max_bytes: whole ones, since to tell
-- the head of a record takes reading all of it.
local due, processing, dead, done, jobs, leases, counts, errors, results, holders = unpack(KEYS)
local out = {'OK', math.floor(now_us() / 1000)}
local zsets, ids, bytes = {due, processing, dead, done}, {}, 0
local part, max_bytes = tonumber(ARGV[1]), tonumber(ARGV[2])
for i = 3, #ARGV do
  ids[i - 2] = ARGV[i]
end
for i, place in ipairs(places(ids, due, processing, dead, done)) do
  local id, at = ids[i], 2 + 8 * (i - 1)
  local zset, token = zsets[tonumber(place)], call('HGET', leases, id) or ''
  local finished = place == '4' and part == 0
  bytes = bytes + call('HSTRLEN', jobs, id) + (finished and call('HSTRLEN', results, id) or 0)
  if i > 1 and bytes > max_bytes then
    return out
  end
  local record = call('HGET', jobs, id) or ''
  if part > 0 then
    record = string.sub(record, 1, part)
  end
  out[at + 1], out[at + 2] = place, zset and call('ZSCORE', zset, id) or ''
  out[at + 3], out[at + 4] = record, call('HGET', counts, id) or ''
  out[at + 5], out[at + 6], out[at + 7] = call('HGET', errors, id) or '', token, holder_of(holders, token)
  out[at + 8] = finished and call('HGET', results, id) or ''
end
return out
