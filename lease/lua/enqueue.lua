-- enqueue: makes jobs whose ID is in no place, due at a time
-- KEYS: sessions jobs due processing dead done leases counts errors policy stats wake
-- ARGV: session number largest sizes, then per job: id when record own
-- ANSWER: OK codes | AGAIN codes | STALE | NOSESSION
-- CODES: c created; 1 2 3 4 duplicate in due, processing, dead, done; t payload larger than the published limit
-- when is a delay in ms or @ and a time in ms; own is '' or the job's own limits; sizes are the payloads' sizes.
local sessions, jobs, due, processing, dead, done, leases, counts, errors, policy, stats, wake = unpack(KEYS)
local answer = session_check(sessions, ARGV[1], ARGV[2])
if answer then
  return answer
end
local now = now_us()
local floor_ms, ceil_ms = math.floor(now / 1000), math.ceil(now / 1000)

local limit, sizes = tonumber(call('HGET', policy, 'payload_limit') or ''), nil
if limit and tonumber(ARGV[3]) > limit then
  sizes = {}
  for size in string.gmatch(ARGV[4], '%d+') do
    sizes[#sizes + 1] = tonumber(size)
  end
end

local ids = {}
for i = 5, #ARGV, 4 do
  ids[(i - 1) / 4] = ARGV[i]
end
-- Places that are empty need no look, and commands that would find nothing are left out: most queues have no dead jobs.
local in_due = call('ZMSCORE', due, unpack(ids))
local in_processing = call('ZCARD', processing) > 0 and call('ZMSCORE', processing, unpack(ids)) or {}
local in_dead = call('ZCARD', dead) > 0 and call('ZMSCORE', dead, unpack(ids)) or {}
local in_done = call('ZCARD', done) > 0 and call('ZMSCORE', done, unpack(ids)) or {}

local codes, made, records, scores, owned, created = {}, {}, {}, {}, {}, {}
local earliest, n_created, last_at, last_score = nil, 0, nil, nil
for n = 1, #ids do
  local id, when = ids[n], ARGV[4 * n + 2]
  if in_due[n] or made[id] then
    codes[n] = '1'
  elseif in_processing[n] then
    codes[n] = '2'
  elseif in_dead[n] then
    codes[n] = '3'
  elseif in_done[n] then
    codes[n] = '4'
  elseif sizes and sizes[n] > limit then
    codes[n] = 't'
  else
    local at = floor_ms
    if when ~= '0' then
      if string.sub(when, 1, 1) == '@' then
        at = tonumber(string.sub(when, 2))
      else
        at = ceil_ms + tonumber(when)
      end
    end
    if at ~= last_at then
      last_at, last_score = at, int(at)
    end
    codes[n], made[id] = 'c', true
    n_created = n_created + 1
    created[n_created] = id
    records[2 * n_created - 1], records[2 * n_created] = id, ARGV[4 * n + 3]
    scores[2 * n_created - 1], scores[2 * n_created] = last_score, id
    if ARGV[4 * n + 4] ~= '' then
      owned[#owned + 1] = id
      owned[#owned + 1] = '0 0 0 ' .. ARGV[4 * n + 4]
    end
    if not earliest or at < earliest then
      earliest = at
    end
  end
end

if n_created > 0 then
  call('HSET', jobs, unpack(records)) -- the first write: what is out of memory stops here
  local head = call('ZRANGE', due, 0, 0, 'WITHSCORES')
  for _, key in ipairs({leases, counts, errors}) do
    if call('HLEN', key) > 0 then
      call('HDEL', key, unpack(created)) -- what an orphan of the same ID may have left
    end
  end
  call('ZADD', due, unpack(scores))
  if #owned > 0 then
    call('HSET', counts, unpack(owned))
  end
  call('HINCRBY', stats, 'enqueued', n_created)
  if not head[2] or earliest < score(head[2]) then
    wake_up(wake)
  end
end
local rest = table.concat(codes)
session_store(sessions, ARGV[1], ARGV[2], now, rest)
return {'OK', rest}
