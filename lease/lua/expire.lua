-- expire: puts jobs whose lease has run out back to due, or to dead when that happened too often
-- KEYS: sessions due processing dead jobs leases counts errors sweep policy stats wake holders
-- ARGV: n no_grace stub
-- ANSWER: OK to_due to_dead cancelled missing more next_expiry_ms grace_ms lease_ms
-- Judges the outage grace: a gap between sweeps of more than half a lease spares the holders for one lease, up to
-- three gaps in a row. next_expiry_ms is -1 where nothing is in processing. Safe to run twice.
local sessions, due, processing, dead, jobs, leases, counts, errors, sweep, policy, stats, wake, holders = unpack(KEYS)
call('HDEL', sessions, '')
local now = now_us()
local now_ms = math.floor(now / 1000)
local lease, max_expiries, base, cap, concurrency =
  published(policy, 'lease_ms', 'max_expiries', 'expiry_backoff_base_ms', 'expiry_backoff_cap_ms', 'concurrency')

local function next_expiry()
  local first = call('ZRANGE', processing, 0, 0, 'WITHSCORES')
  if not first[2] then
    return -1
  end
  return math.min(math.max(0, score(first[2]) - now_ms), 1e12)
end

if ARGV[2] == '1' then
  call('HSET', sweep, 'swept', int(now_ms))
else
  local was = call('HMGET', sweep, 'swept', 'grace', 'row')
  local swept, grace, row = tonumber(was[1] or '0'), tonumber(was[2] or '0'), tonumber(was[3] or '0')
  grace = math.min(grace, now_ms + lease)
  if now_ms - swept > lease / 2 and row < 3 then
    grace, row = now_ms + lease, row + 1
    call('HINCRBY', stats, 'graces', 1)
  end
  if now_ms >= grace then
    row = 0
  end
  call('HSET', sweep, 'swept', int(now_ms), 'grace', int(grace), 'row', int(row))
  if now_ms < grace then
    return {'OK', 0, 0, 0, 0, 0, next_expiry(), grace - now_ms, lease}
  end
end

local n = tonumber(ARGV[1])
local ids = call('ZRANGEBYSCORE', processing, '-inf', int(now_ms), 'LIMIT', 0, n)
if #ids == 0 then
  return {'OK', 0, 0, 0, 0, 0, next_expiry(), 0, lease}
end
local tokens, numbers = call('HMGET', leases, unpack(ids)), call('HMGET', counts, unpack(ids))
local to_due, to_dead, removed, missing, new_counts, last_errors = {}, {}, {}, {}, {}, {}
local expired, earliest = 0, nil
for i, id in ipairs(ids) do
  local token = tokens[i]
  local mark = token and string.sub(token, 1, 1) == '!'
  if token and not mark then
    expired = expired + 1
  end
  if mark then
    removed[#removed + 1] = id
  elseif call('HEXISTS', jobs, id) == 0 then
    if id ~= STRETCH then -- which is none, and goes with the others: a torn append-only file may have left it
      missing[#missing + 1] = id
    end
  else
    local f, e, r, own = counts_read(numbers[i])
    local _, own_max = own_limits(own)
    append(new_counts, id, counts_write(f, e + 1, r, own))
    if e + 1 > (own_max or max_expiries) then
      append(to_dead, int(now_ms), id)
      local times = e == 0 and 'once' or int(e + 1) .. ' times'
      append(last_errors, id, {f + e + 1, holder_of(holders, token), 'lease expired ' .. times})
    else
      local delay = base > 0 and math.min(base * 2 ^ math.min(e, 40), cap) or 0
      local at = delay > 0 and math.ceil(now / 1000) + math.ceil(delay) or now_ms
      append(to_due, int(at), id)
      if not earliest or at < earliest then
        earliest = at
      end
    end
  end
end

-- Removal comes first, so that a job is never in two places.
each(1, 'ZREM', processing, ids)
each(1, 'HDEL', leases, ids)
for _, hash in ipairs({jobs, counts, errors}) do
  each(1, 'HDEL', hash, removed)
end
each(2, 'HSET', counts, new_counts)
if earliest then
  local head = call('ZRANGE', due, 0, 0, 'WITHSCORES')
  each(2, 'ZADD', due, to_due)
  if earliest <= now_ms or not head[2] or earliest < score(head[2]) then
    wake_up(wake)
  end
end
places_freed(concurrency, due, wake, now_ms)
each(2, 'ZADD', dead, to_dead)
for i = 1, #last_errors, 2 do
  local last = last_errors[i + 1]
  error_add(errors, last_errors[i], now_ms, last[1], last[2], last[3], '')
end
no_record(missing, now_ms, ARGV[3], dead, jobs, errors, stats)
for name, count in pairs({expired = expired, died = #to_dead / 2, cancelled = #removed, cancelled_processing = #removed}) do
  if count > 0 then
    call('HINCRBY', stats, name, count)
  end
end
local next_ms = next_expiry()
return {'OK', #to_due / 2, #to_dead / 2, #removed, #missing, next_ms == 0 and 1 or 0, next_ms, 0, lease}
