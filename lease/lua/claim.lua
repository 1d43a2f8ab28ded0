-- claim: leases the jobs that are due, the lowest due times first
-- KEYS: sessions due processing dead jobs leases counts errors fence policy stats wake
-- ARGV: session number seen n lease_ms max_bytes stub
-- ANSWER: OK lease_ms next_due_ms held first_fence n missing now_ms heads ids, then per job: record, then late if there are any | SHORT lease_ms | AGAIN what | STALE | NOSESSION
-- seen is the highest fence that this session was given: what it leased beyond was never seen, and goes back first.
-- The stored answer is `first_fence n expiry`. next_due_ms is -1 where nothing is due at all. stub stands in for a
-- record that is missing. held says why jobs are not given although they are due: '', paused, concurrency (as many
-- are in processing as the policy allows), or rate (as many were started); next_due_ms is then when that ends, at the
-- earliest, and -1 where nobody knows. A lease_ms of 0 is the published one; a shorter one than that is refused (SHORT).
-- heads has a line for each job, `due length counts`, counts where there are any; ids are all IDs, one after the other,
-- length is one's. late has three elements for each job that went to dead since its time is over: a line as those of heads,
-- the ID and the record.
local sessions, due, processing, dead, jobs, leases, counts, errors, fence, policy, stats, wake = unpack(KEYS)
call('HDEL', sessions, '')
local answer, rest = session_check(sessions, ARGV[1], ARGV[2])
if answer then
  return answer
end
local session, number, seen, n = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local now, now_text = now_us()
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
        append(released, now_text, id)
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

local limits = claim_limits(policy)
local lease, limit, paused, concurrency = whole(limits[1], DEFAULTS.lease_ms), whole(limits[2]), whole(limits[3]), whole(limits[4])
local rate, interval, next_us = whole(limits[5]), whole(limits[6], DEFAULTS.rate_interval_ms), whole(limits[7])
local room, freed = math.huge, #released -- places in processing; what this claim has given back
if concurrency and concurrency > 0 then
  room, freed = concurrency - call('ZCARD', processing), #dropped
end
-- A start takes each_us of the rate; next_us is when the last one's is over. The next may come slack_us before that, since
-- nobody comes in time to the microsecond: so that as many may start at once as 100 ms make up, and one at least. next_us is
-- never further ahead than starts can make it: a clock that steps back, or a rate that is raised, does not stop the queue.
local starts, each_us, slack_us = math.huge, nil, nil
if rate and rate > 0 then
  each_us = 1000 * math.max(interval, 1) / rate
  slack_us = math.max((math.floor(1e5 / each_us) - 1) * each_us, math.min(each_us / 2, 10000))
  next_us = math.min(math.max(next_us or 0, now), now + slack_us + each_us)
  starts = math.floor((now + slack_us - next_us) / each_us + 1.000001)
end
local asked = tonumber(ARGV[5])
if asked > 0 and asked < lease then
  if freed > 0 then
    wake_up(wake)
  end
  session_store(sessions, session, number, now_text, '0 0 0')
  return {'SHORT', lease}
end
lease = math.max(asked, lease)

-- Of the first n + 1, how many are due, and how many of these fit into the bytes of one answer: at least one does. Records
-- are read a few at a time, so that few bytes are read in vain; where nobody knows how large they are, one at a time, after
-- a look at its size.
local due_ids, due_times = {}, {}
for i, text in ipairs(call('ZRANGE', due, '0', ARGV[4], 'WITHSCORES')) do
  if i % 2 == 1 then
    due_ids[#due_ids + 1] = text
  else
    due_times[#due_times + 1] = text
  end
end
local ready, next_due = #due_ids, -1
while ready > 0 and score(due_times[ready]) > floor_ms do
  ready = ready - 1
end
local wanted, max_bytes = math.max(math.min(n, ready, room, starts), 0), tonumber(ARGV[6])
local held, pause = '', pause_left(paused, floor_ms)
if pause then
  held, wanted = 'paused', 0
end
local step = limit and math.max(1, math.floor(4 * max_bytes / (limit + 8192))) or 1
local ids, records, heads, missing, lengths = {}, {}, {}, {}, {[26] = ' 26'}
local take, bytes, full = 0, 0, false
while take < wanted and not full do
  local from, to = take + 1, math.min(take + step, wanted)
  local page
  if step > 1 or take == 0 or bytes + call('HSTRLEN', jobs, due_ids[from]) <= max_bytes then
    page = call('HMGET', jobs, unpack(due_ids, from, to))
  else
    full = true
  end
  for i = from, page and to or 0 do
    local id, record = due_ids[i], page[i - from + 1]
    local size = record and #record or 0
    if take > 0 and bytes + size > max_bytes then
      full = true
      break
    end
    take, bytes = i, bytes + size
    if size == 0 then
      missing[#missing + 1] = id
    else
      local k, length = #ids + 1, #id
      lengths[length] = lengths[length] or ' ' .. int(length)
      ids[k], records[k], heads[k] = id, record, due_times[i] .. lengths[length]
    end
  end
end
-- What counts holds of them: jobs whose not-after has passed are not leased, and go to dead behind those that are.
local late, late_scores, late_attempts = nil, {}, {}
if #ids > 0 and call('HLEN', counts) > 0 then
  local kept, n_read = 0, #ids
  for i, text in ipairs(call('HMGET', counts, unpack(ids))) do
    local id, record, head, until_ms = ids[i], records[i], heads[i], nil
    if text and not string.find(text, '[^%d %-]') then
      head, until_ms = head .. ' ' .. text, string.match(text, '^%d+ %d+ %d+ %S+ %S+ (%d+)$')
    end
    if until_ms and tonumber(until_ms) < floor_ms then
      late = late or {}
      append(late, head, id)
      late[#late + 1] = record
      append(late_scores, int(floor_ms), id)
      local failures, expiries = counts_read(text)
      late_attempts[#late_attempts + 1] = failures + expiries
    else
      kept = kept + 1
      ids[kept], records[kept], heads[kept] = id, record, head
    end
  end
  for i = kept + 1, n_read do
    ids[i], records[i], heads[i] = nil, nil, nil
  end
end
local next_fence = tonumber(call('GET', fence) or '0') + 1 -- before anything moves: it may be no number, by somebody's hand
if take > 0 then
  call('ZREMRANGEBYRANK', due, '0', take == 1 and '0' or int(take - 1))
end
no_record(missing, floor_ms, ARGV[7], dead, jobs, errors, stats)

local first, n_ids, expiry, first_text = 0, #ids, int(ceil_ms + lease), '0'
local count_text = n_ids == 1 and '1' or int(n_ids)
if n_ids > 0 then
  first = math.max(now, next_fence)
  first_text = int(first)
  call('SET', fence, n_ids == 1 and first_text or int(first + n_ids - 1))
  -- Of the tokens only the last digits of the fence differ.
  local owner, low = ':' .. session .. ':' .. number, first % 1e9
  local form = n_ids > 1 and first >= 1e9 and low + n_ids <= 1e9 and int((first - low) / 1e9) .. '%09d' .. owner
  local tokens, scores = {ids[1], first_text .. owner}, {expiry, ids[1]}
  for i = 2, n_ids do
    local id = ids[i]
    tokens[2 * i - 1], tokens[2 * i] = id, form and string.format(form, low + i - 1) or int(first + i - 1) .. owner
    scores[2 * i - 1], scores[2 * i] = expiry, id
  end
  call('ZADD', processing, unpack(scores))
  call('HSET', leases, unpack(tokens))
  call('HINCRBY', stats, 'claimed', count_text)
  if each_us then
    next_us = math.floor(next_us + n_ids * each_us + 0.5)
    call('HSET', policy, 'rate_next_us', int(next_us))
  end
end
if late then
  each(2, 'ZADD', dead, late_scores)
  for i, attempt in ipairs(late_attempts) do
    error_add(errors, late_scores[2 * i], floor_ms, attempt, '', 'too late\ttoo-late', '')
  end
  call('HINCRBY', stats, 'too_late', #late_attempts)
  call('HINCRBY', stats, 'died', #late_attempts)
end

if due_times[take + 1] then
  next_due = math.min(math.max(0, score(due_times[take + 1]) - floor_ms), 1e12)
end
if pause then
  next_due = next_due >= 0 and pause > 0 and math.min(math.max(next_due, pause), 1e12) or -1
elseif next_due == 0 and n_ids >= room then
  held, next_due = 'concurrency', -1 -- whatever frees a place wakes somebody up
elseif next_due == 0 and n_ids >= starts then
  -- Looks are 10 ms apart, where that much can be caught up: at a high rate some may start at each.
  held, next_due = 'rate', math.max(math.ceil((next_us - slack_us - now) / 1000), slack_us > 10000 and 10 or 1)
end
if next_due == 0 and take + freed > 0 then
  wake_up(wake)
end
local out = {'OK', lease, next_due, held, first_text, n_ids, #missing, floor_ms, table.concat(heads, '\n'), table.concat(ids)}
for i = 1, n_ids do
  out[10 + i] = records[i]
end
out[11 + n_ids] = late
session_store(sessions, session, number, now_text, first_text .. ' ' .. count_text .. ' ' .. expiry)
return out
