-- cancel: removes jobs by ID; one that is being worked on is marked, and removed when its lease ends
-- KEYS: sessions due processing dead done jobs leases counts errors results stats records…
-- ARGV: session number, then per record: item, then per item: id
-- ANSWER: OK codes | AGAIN codes | STALE | NOSESSION
-- CODES: c cancelled; p cancelling; 0 gone
-- A record goes with the job of its item, by the item's number from 1, if that is removed now.
local sessions, due, processing, dead, done, jobs, leases, counts, errors, results, stats = unpack(KEYS)
local records = {unpack(KEYS, 12)}
call('HDEL', sessions, '')
local answer = session_check(sessions, ARGV[1], ARGV[2])
if answer then
  return answer
end
local now = now_us()
local ids, codes, removed = {}, {}, {}
for i = 3 + #records, #ARGV do
  ids[#ids + 1] = ARGV[i]
end
local tokens = call('HMGET', leases, unpack(ids))
local twice = {}
for i, place in ipairs(places(ids, due, processing, dead, done)) do
  local id = ids[i]
  if place == '0' or twice[id] then
    codes[i] = '0'
  elseif place == '2' then
    codes[i] = 'p'
    if string.sub(tokens[i] or '!', 1, 1) ~= '!' then
      call('HSET', leases, id, '!' .. tokens[i])
      tokens[i] = '!' .. tokens[i]
    end
  else
    codes[i], twice[id] = 'c', true
    removed[#removed + 1] = id
  end
end
for _, zset in ipairs({due, dead, done}) do
  each(1, 'ZREM', zset, removed)
end
for _, hash in ipairs({jobs, counts, errors, results}) do
  each(1, 'HDEL', hash, removed)
end
for i, record in ipairs(records) do
  if codes[tonumber(ARGV[2 + i])] == 'c' then
    call('DEL', record)
  end
end
if #removed > 0 then
  call('HINCRBY', stats, 'cancelled', #removed)
end
local rest = table.concat(codes)
session_store(sessions, ARGV[1], ARGV[2], now, rest)
return {'OK', rest}
