-- purge: deletes jobs of one place for good: by ID, or the oldest up to a bound; never one in processing
-- KEYS: sessions due dead done jobs counts errors results stats records…
-- ARGV: session number place n bound, then per record: item, then per item: id
-- ANSWER: OK what | AGAIN what | STALE | NOSESSION
-- WHAT: bound more codes
-- CODES: o deleted; 0 not in that place
-- place is due, dead or done. Without IDs: the n lowest of those that were due, died or were done at bound or before;
-- bound '' is now, and is answered. A record goes with the job of its item, by the item's number from 1.
local sessions, due, dead, done, jobs, counts, errors, results, stats = unpack(KEYS)
local records = {unpack(KEYS, 10)}
call('HDEL', sessions, '')
local answer = session_check(sessions, ARGV[1], ARGV[2])
if answer then
  return answer
end
local now = now_us()
local place = ({due = due, dead = dead, done = done})[ARGV[3]]
local bound = ARGV[5] == '' and int(math.floor(now / 1000)) or ARGV[5]
local ids, codes, gone, twice = {}, {}, {}, {}
if #ARGV == 5 then
  ids = call('ZRANGEBYSCORE', place, '-inf', bound, 'LIMIT', 0, tonumber(ARGV[4]))
else
  for i = 6 + #records, #ARGV do
    ids[#ids + 1] = ARGV[i]
  end
end
if #ids > 0 then
  for i, at in ipairs(call('ZMSCORE', place, unpack(ids))) do
    if at and not twice[ids[i]] then
      codes[i], twice[ids[i]] = 'o', true
      gone[#gone + 1] = ids[i]
    else
      codes[i] = '0'
    end
  end
  each(1, 'ZREM', place, gone)
  for _, hash in ipairs({jobs, counts, errors, results}) do
    each(1, 'HDEL', hash, gone)
  end
end
for i, record in ipairs(records) do
  if codes[tonumber(ARGV[5 + i])] == 'o' then
    call('DEL', record)
  end
end
if #gone > 0 then
  call('HINCRBY', stats, 'purged', #gone)
end
local more = #ARGV == 5 and call('ZCOUNT', place, '-inf', bound) > 0 and '1' or '0'
local what = bound .. ' ' .. more .. ' ' .. table.concat(codes)
session_store(sessions, ARGV[1], ARGV[2], now, what)
return {'OK', what}
