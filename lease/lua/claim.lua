-- claim: leases the jobs that are due, the lowest due times first
-- KEYS: sessions due processing dead jobs leases counts errors fence policy stats wake
-- ARGV: session number seen n lease_ms max_bytes stub
-- ANSWER: OK lease_ms next_due_ms held first_fence n missing now_ms, then per job: id record due counts | SHORT lease_ms | AGAIN what | STALE | NOSESSION
-- seen is the highest fence that this session was given: what it leased beyond was never seen, and goes back first.
-- The stored answer is `first_fence n expiry`. next_due_ms is -1 where nothing is due at all. stub stands in for a
-- record that is missing. A lease_ms of 0 is the published one; a shorter one than that is refused (SHORT).
local sessions, due, processing, dead, jobs, leases, counts, errors, fence, policy, stats, wake = unpack(KEYS)
call('HDEL', sessions, '')
local answer, rest = session_check(sessions, ARGV[1], ARGV[2])
if answer then
  return answer
end
local session, number, seen, n = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local now = now_us()
local floor_ms, ceil_ms = math.floor(now / 1000), math.ceil(now / 1000)

-- What an earlier claim of this session leased and nobody saw: back to due at once, uncounted. All of one claim have
-- one expiry, since nothing of a claim is extended before it was handed over.
local released, dropped = {}, {}
local old_first, old_n, old_expiry = string.match(rest, '^(%d+) (%d+) (%d+)$')
if old_first and tonumber(old_n) > 0 and tonumber(old_first) + tonumber(old_n) - 1 > seen then
  local same = call('ZRANGEBYSCORE', processing, old_expiry, old_expiry)
  local held = hmget(leases, same)
  for i, id in ipairs(same) do
    local mark, given, owner = string.match(held[i] or '', '^(!?)(%d+):([^:]+):')
    if owner == session and tonumber(given) > seen then
      if mark == '!' then
        dropped[#dropped + 1] = id
      else
        append(released, int(floor_ms), id)
      end
    end
  end
  for i = 2, #released, 2 do
    dropped[#dropped + 1] = released[i]
  end
  each(1, 'ZREM', processing, dropped)
  each(1, 'HDEL', leases, dropped)
  each(2, 'ZADD', due, released)
  local cancelled = #dropped - #released / 2
  if cancelled > 0 then
    for i = 1, cancelled do
      call('HDEL', jobs, dropped[i])
      call('HDEL', counts, dropped[i])
      call('HDEL', errors, dropped[i])
    end
    call('HINCRBY', stats, 'cancelled', cancelled)
    call('HINCRBY', stats, 'cancelled_processing', cancelled)
  end
  if #released > 0 then
    call('HINCRBY', stats, 'released', #released / 2)
  end
end

local lease = published(policy, 'lease_ms')
local asked = tonumber(ARGV[5])
if asked > 0 and asked < lease then
  if #released > 0 then
    wake_up(wake)
  end
  session_store(sessions, session, number, now, '0 0 0')
  return {'SHORT', lease}
end
lease = math.max(asked, lease)

-- How many of the first n fit into the bytes of one answer: at least one does.
local heads, take = {}, 0
if n > 0 then
  heads = call('ZRANGEBYSCORE', due, '-inf', int(floor_ms), 'WITHSCORES', 'LIMIT', 0, n)
end
local ids, dues, missing, bytes, max_bytes = {}, {}, {}, 0, tonumber(ARGV[6])
for i = 1, #heads, 2 do
  local size = call('HSTRLEN', jobs, heads[i])
  if take > 0 and bytes + size > max_bytes then
    break
  end
  take, bytes = take + 1, bytes + size
  if size == 0 then
    missing[#missing + 1] = heads[i]
  else
    ids[#ids + 1], dues[#dues + 1] = heads[i], heads[i + 1]
  end
end
local next_fence = tonumber(call('GET', fence) or '0') + 1 -- before anything moves: it may be no number, by somebody's hand
if take > 0 then
  call('ZREMRANGEBYRANK', due, 0, take - 1)
end
no_record(missing, floor_ms, ARGV[7], dead, jobs, errors, stats)

local first, expiry = 0, ceil_ms + lease
if #ids > 0 then
  first = math.max(now, next_fence)
  call('SET', fence, int(first + #ids - 1))
  local tokens, scores, owner = {}, {}, ':' .. session .. ':' .. number
  for i, id in ipairs(ids) do
    tokens[2 * i - 1], tokens[2 * i] = id, int(first + i - 1) .. owner
    scores[2 * i - 1], scores[2 * i] = int(expiry), id
  end
  call('ZADD', processing, unpack(scores))
  call('HSET', leases, unpack(tokens))
  call('HINCRBY', stats, 'claimed', #ids)
end

local head, next_due = call('ZRANGE', due, 0, 0, 'WITHSCORES'), -1
if head[2] then
  next_due = math.min(math.max(0, score(head[2]) - floor_ms), 1e12)
  if next_due == 0 and take + #released > 0 then
    wake_up(wake)
  end
end
local out = {'OK', lease, next_due, '', int(first), #ids, #missing, floor_ms}
if #ids > 0 then
  local records, numbers = call('HMGET', jobs, unpack(ids)), call('HMGET', counts, unpack(ids))
  for i, id in ipairs(ids) do
    local at = 8 + 4 * (i - 1)
    out[at + 1], out[at + 2], out[at + 3], out[at + 4] = id, records[i], dues[i], numbers[i] or ''
  end
end
session_store(sessions, session, number, now, int(first) .. ' ' .. #ids .. ' ' .. int(expiry))
return out
