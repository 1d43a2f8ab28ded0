-- claim: leases the jobs that are due, the lowest due times first
-- KEYS: sessions due processing dead jobs leases counts errors fence policy stats wake
-- ARGV: session number seen n lease_ms max_bytes stub
-- ANSWER: OK lease_ms next_due_ms held first_fence n missing now_ms dues sizes counts ids, then per job: record, then late if there are any | SHORT lease_ms | AGAIN what | STALE | NOSESSION
-- seen is the highest fence that this session was given: what it leased beyond was never seen, and goes back first.
-- The stored answer is `first_fence n expiry`. next_due_ms is -1 where nothing is due at all. stub stands in for a
-- record that is missing. held says why jobs are not given although they are due: '', paused, concurrency (as many
-- are in processing as the policy allows), or rate (as many were started); next_due_ms is then when that ends, at the
-- earliest, and -1 where nobody knows. A lease_ms of 0 is the published one; a shorter one than that is refused (SHORT).
-- dues are the due times, and sizes the lengths of the IDs: one that is every job's, or one for each, with blanks between.
-- counts is empty, or has a line for each job, empty where there are none. ids are all IDs, one after the other. late has
-- four elements for each job that went to dead since its time is over: due time, counts, ID and record.
local sessions, due, processing, dead, jobs, leases, counts, errors, fence, policy, stats, wake = unpack(KEYS)
call('HDEL', sessions, '')
local answer, rest = session_check(sessions, ARGV[1], ARGV[2])
if answer then
  return answer
end
local session, number, seen, n = ARGV[1], ARGV[2], ARGV[3] + 0, ARGV[4] + 0
local now, now_text = now_us()
local floor_ms, ceil_ms = math.floor(now / 1000), math.ceil(now / 1000)

-- What an earlier claim of this session leased and nobody saw: back to due at once, uncounted. All of one claim have
-- one expiry, since nothing of a claim is extended before it was handed over. Returns how many went back, and how many
-- have left processing.
local function give_back(owner_of_all, highest, at) -- rare
  local released, dropped = {}, {}
  local same = call('ZRANGEBYSCORE', processing, at, at)
  local held = hmget(leases, same)
  for i, id in ipairs(same) do
    local mark, given, owner = string.match(held[i] or '', '^(!?)(%d+):([^:]+):')
    if owner == owner_of_all and tonumber(given) > highest then
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
  return #released, #dropped
end

local released, dropped = 0, 0
local old_first, old_n, old_expiry = string.match(rest, '^(%d+) (%d+) (%d+)$')
if old_first and old_n ~= '0' and old_first + old_n - 1 > seen then
  released, dropped = give_back(session, seen, old_expiry)
end

local limits = claim_limits(policy)
local lease, limit, paused, concurrency = whole(limits[1], DEFAULT_LEASE_MS), whole(limits[2]), whole(limits[3]), whole(limits[4])
local rate, interval, next_us = whole(limits[5]), whole(limits[6], DEFAULT_RATE_INTERVAL_MS), whole(limits[7])
local room, freed = math.huge, released -- places in processing; what this claim has given back
if concurrency and concurrency > 0 then
  room, freed = concurrency - call('ZCARD', processing), dropped
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
local asked = ARGV[5] + 0
if asked > 0 and asked < lease then
  if freed > 0 then
    wake_up(wake)
  end
  session_store(sessions, session, number, now_text, '0 0 0')
  return {'SHORT', lease}
end
lease = math.max(asked, lease)

-- Of the first n + 1, how many are due, and how many of these fit into the bytes of one answer: at least one does. Redis
-- takes longer to write a due time than to find a job: where the first and the last have the same, all between them have.
local ids, flat, same = {}, nil, nil
if n > 4 then
  ids = call('ZRANGE', due, '0', ARGV[4])
  local ends = ids[1] and call('ZMSCORE', due, ids[1], ids[#ids]) or {}
  same = ends[1] == ends[2] and ends[1]
end
if not same and (n <= 4 or ids[1]) then
  flat = call('ZRANGE', due, '0', ARGV[4], 'WITHSCORES')
  for i = 1, #flat, 2 do
    ids[(i + 1) / 2] = flat[i]
  end
end
local ready, next_due = #ids, -1
if same then
  ready = score(same) <= floor_ms and ready or 0
else
  while ready > 0 and score(flat[2 * ready]) > floor_ms do
    ready = ready - 1
  end
end
local wanted, max_bytes = math.max(math.min(n, ready, room, starts), 0), ARGV[6] + 0
local held, pause = '', pause_left(paused, floor_ms)
if pause then
  held, wanted = 'paused', 0
end

-- Records are read a few at a time, so that few bytes are read in vain; where nobody knows how large they are, one at a
-- time, after a look at its size.
local step = limit and math.max(1, math.floor(4 * max_bytes / (limit + 8192))) or 1
local records, missing, take, bytes, full = {}, 0, 0, 0, false
while take < wanted and not full do
  local from, to = take + 1, math.min(take + step, wanted)
  local page
  if step > 1 or take == 0 or bytes + call('HSTRLEN', jobs, ids[from]) <= max_bytes then
    page = call('HMGET', jobs, unpack(ids, from, to))
  else
    full = true
  end
  for i = from, page and to or 0 do
    local record = page[i - from + 1]
    local size = record and #record or 0
    if take > 0 and bytes + size > max_bytes then
      full = true
      break
    end
    take, bytes = i, bytes + size
    if size == 0 then
      missing = missing + 1
    end
    if from > 1 then
      records[i] = record
    end
  end
  if from == 1 then
    records = page
  end
end
-- What counts holds of them: jobs whose not-after has passed are not leased, and go to dead.
local texts, outdated = nil, {}
if take > missing and not none_counted and call('HLEN', counts) > 0 then
  texts = call('HMGET', counts, unpack(ids, 1, take))
  for i = 1, take do
    if not texts[i] or string.find(texts[i], '[^%d %-]') then
      texts[i] = ''
    elseif texts[i] ~= '' then
      local until_ms = string.match(texts[i], '^%d+ %d+ %d+ %S+ %S+ (%d+)$')
      if until_ms and until_ms + 0 < floor_ms then
        outdated[i] = true
      end
    end
  end
end
local next_fence = (call('GET', fence) or '0') + 1 -- before anything moves: it may be no number, by somebody's hand
if take > 0 then
  call('ZREMRANGEBYRANK', due, '0', take == 1 and '0' or int(take - 1))
end
local next_time = ids[take + 1] and score(same or flat[2 * take + 2])

-- put_aside takes what is not leased out of the lists, which close up, and puts it into dead: members without a record, and
-- jobs that are too late. Returns how many are left, and what is answered of those that are late.
local function put_aside() -- rare
  local lacking, late, scores, attempts, kept = {}, {}, {}, {}, 0
  for i = 1, take do
    local id, record, due_time = ids[i], records[i], same or flat[2 * i]
    if not record or record == '' then
      lacking[#lacking + 1] = id
    elseif outdated[i] then
      append(late, due_time, texts[i])
      append(late, id, record)
      append(scores, int(floor_ms), id)
      local failures, expiries = counts_read(texts[i])
      attempts[#attempts + 1] = failures + expiries
    else
      kept = kept + 1
      ids[kept], records[kept] = id, record
      if flat then
        flat[2 * kept] = due_time
      end
      if texts then
        texts[kept] = texts[i]
      end
    end
  end
  no_record(lacking, floor_ms, ARGV[7], dead, jobs, errors, stats)
  each(2, 'ZADD', dead, scores)
  for i, attempt in ipairs(attempts) do
    error_add(errors, scores[2 * i], floor_ms, attempt, '', 'too late\ttoo-late', '')
  end
  if #attempts > 0 then
    call('HINCRBY', stats, 'too_late', #attempts)
    call('HINCRBY', stats, 'died', #attempts)
  end
  return kept, attempts[1] and late
end
local n_ids, late = take, nil
if missing > 0 or next(outdated) then
  n_ids, late = put_aside()
end

local first, expiry, first_text = 0, int(ceil_ms + lease), '0'
local count_text = n_ids == 1 and '1' or int(n_ids)
local dues, sizes, own = '', '', ''
if n_ids > 0 then
  first = math.max(now, next_fence)
  first_text = int(first)
  call('SET', fence, n_ids == 1 and first_text or int(first + n_ids - 1))
  local owner = ':' .. session .. ':' .. number
  if n_ids == 1 then
    call('ZADD', processing, expiry, ids[1])
    call('HSET', leases, ids[1], first_text .. owner)
  else
    local list = {unpack(ids, 1, 2 * n_ids)} -- a table with room for two of each
    for i = 1, n_ids do
      list[2 * i - 1], list[2 * i] = ids[i], expiry
    end
    if n_ids < 16 then
      call('ZADD', processing, expiry, unpack(list, 1, 2 * n_ids - 1))
    else
      call('ZADD', processing, '0', STRETCH, expiry, unpack(list, 1, 2 * n_ids - 1))
      call('ZREM', processing, STRETCH)
    end
    -- Of the tokens only the last digits of the fence differ.
    local digits, digit = {[0] = '0', '1', '2', '3', '4', '5', '6', '7', '8', '9'}, first % 10
    local ten, front = first - digit, string.sub(first_text, 1, -2)
    for i = 1, n_ids do
      list[2 * i] = front .. digits[digit] .. owner
      digit = digit + 1
      if digit == 10 then
        digit, ten = 0, ten + 10
        front = string.sub(int(ten), 1, -2)
      end
    end
    call('HSET', leases, unpack(list, 1, 2 * n_ids))
  end
  call('HINCRBY', stats, 'claimed', count_text)
  if each_us then
    next_us = math.floor(next_us + n_ids * each_us + 0.5)
    call('HSET', policy, 'rate_next_us', int(next_us))
  end

  local size, alike = #ids[1], true
  for i = 2, n_ids do
    if #ids[i] ~= size then
      alike = false
      break
    end
  end
  if alike then
    sizes = size == 26 and '26' or int(size)
  else
    local list = {}
    for i = 1, n_ids do
      list[i] = int(#ids[i])
    end
    sizes = table.concat(list, ' ')
  end
  if same or n_ids == 1 then
    dues = same or flat[2]
  else
    local list = {unpack(ids, 1, n_ids)}
    for i = 1, n_ids do
      list[i] = flat[2 * i]
    end
    dues = table.concat(list, ' ')
  end
  if texts then
    own = table.concat(texts, '\n', 1, n_ids)
  end
end

if next_time then
  next_due = math.min(math.max(0, next_time - floor_ms), 1e12)
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
if late then
  records[n_ids + 1] = late
end
session_store(sessions, session, number, now_text, first_text .. ' ' .. count_text .. ' ' .. expiry)
return {
  'OK', lease, next_due, held, first_text, n_ids, missing, floor_ms, dues, sizes, own, table.concat(ids, '', 1, n_ids),
  unpack(records, 1, late and n_ids + 1 or n_ids),
}
