-- import: makes jobs whose ID is in no place, in due or dead, with counters and errors as they are given
-- KEYS: sessions jobs due processing dead done leases counts errors results stats wake
-- ARGV: session number, then per job: id place at record counts errors
-- ANSWER: OK codes | AGAIN codes | STALE | NOSESSION
-- CODES: c made; 1 2 3 4 duplicate in due, processing, dead, done
-- place is due or dead; at is when it is due, or died, in ms: the latter is now at the latest. counts and errors are in
-- the form in which they are stored, or ''.
local sessions, jobs, due, processing, dead, done, leases, counts, errors, results, stats, wake = unpack(KEYS)
local answer = session_check(sessions, ARGV[1], ARGV[2])
if answer then
  return answer
end
local now = now_us()
local floor_ms = math.floor(now / 1000)
local ids = {}
for i = 3, #ARGV, 6 do
  ids[#ids + 1] = ARGV[i]
end
local codes, taken, created, records, numbers, lines, to_due, to_dead = {}, {}, {}, {}, {}, {}, {}, {}
local earliest
for i, place in ipairs(places(ids, due, processing, dead, done)) do
  local id, from = ids[i], 6 * i - 3
  local at = tonumber(ARGV[from + 2])
  if place ~= '0' or taken[id] then
    codes[i] = taken[id] or place
  else
    codes[i] = 'c'
    created[#created + 1] = id
    append(records, id, ARGV[from + 3])
    if ARGV[from + 4] ~= '' then
      append(numbers, id, ARGV[from + 4])
    end
    if ARGV[from + 5] ~= '' then
      append(lines, id, ARGV[from + 5])
    end
    if ARGV[from + 1] == 'dead' then
      taken[id] = '3'
      append(to_dead, int(math.min(at, floor_ms)), id)
    else
      taken[id] = '1'
      append(to_due, int(at), id)
      if not earliest or at < earliest then
        earliest = at
      end
    end
  end
end
if #created > 0 then
  call('HSET', jobs, unpack(records)) -- the first write: what is out of memory stops here
  for _, hash in ipairs({leases, counts, errors, results}) do
    each(1, 'HDEL', hash, created) -- what an orphan of the same ID may have left
  end
  each(2, 'HSET', counts, numbers)
  each(2, 'HSET', errors, lines)
  each(2, 'ZADD', dead, to_dead)
  local head = call('ZRANGE', due, 0, 0, 'WITHSCORES')
  each(2, 'ZADD', due, to_due)
  call('HINCRBY', stats, 'imported', #created)
  if earliest and (not head[2] or earliest < score(head[2])) then
    wake_up(wake)
  end
end
local rest = table.concat(codes)
session_store(sessions, ARGV[1], ARGV[2], now, rest)
return {'OK', rest}
