-- enqueue: makes jobs whose ID is in no place, due at a time; where it is told to, instead of one that is not worked on
-- KEYS: sessions jobs due processing dead done leases counts errors results policy stats wake
-- ARGV: session number largest sizes largest_headers header_sizes modes whens owns, then per job: id record
-- ANSWER: OK codes | AGAIN codes | STALE | NOSESSION
-- CODES: c created; p created in the place of one that was in due, dead or done; 1 2 3 4 duplicate in due, processing,
--   dead, done; t payload, h headers larger than the published limit; l delay longer; f the queue is full
-- sizes are the payloads' sizes. modes has a letter for each job, r where it is to replace, or is ''. whens are delays in ms,
-- or @ and a time in ms: one that is every job's, or one for each, with blanks between. owns is '' where no job has limits of
-- its own, or has a line for each job, empty where it has none. Where a limit has refused a job the codes are followed by the
-- limits of payloads, headers, delays (ms) and length, - where there is none, each after a blank.
local sessions, jobs, due, processing, dead, done, leases, counts, errors, results, policy, stats, wake = unpack(KEYS)
local answer = session_check(sessions, ARGV[1], ARGV[2])
if answer then
  return answer
end
local now, now_text = now_us()
local floor_ms, ceil_ms = math.floor(now / 1000), math.ceil(now / 1000)
local limits = call('HMGET', policy, 'payload_limit', 'header_limit', 'max_delay_ms', 'max_length')
local max_payload, max_headers, max_length = whole(limits[1]), whole(limits[2]), whole(limits[4])
local max_delay = whole(limits[3], DEFAULT_MAX_DELAY_MS)
local room = max_length and max_length - call('ZCARD', due) - call('ZCARD', processing) or math.huge

local n = (#ARGV - 9) / 2
local ids = {unpack(ARGV, 10, n + 9)} -- a table with room for them
for i = 1, n do
  ids[i] = ARGV[2 * i + 8]
end
local whens -- of each job, where they differ
if string.find(ARGV[8], ' ', 1, true) then
  whens = {}
  for when in string.gmatch(ARGV[8], '%S+') do
    whens[#whens + 1] = when
  end
end
-- Places that are empty need no look, and commands that would find nothing are left out: most queues have no dead jobs.
local in_due = call('ZMSCORE', due, unpack(ids))
local in_processing = call('ZCARD', processing) > 0 and call('ZMSCORE', processing, unpack(ids)) or {}
local in_dead = call('ZCARD', dead) > 0 and call('ZMSCORE', dead, unpack(ids)) or {}
local in_done = call('ZCARD', done) > 0 and call('ZMSCORE', done, unpack(ids)) or {}

-- time is when a job is due, in ms.
local function time(when)
  if when == '0' then
    return floor_ms
  elseif string.sub(when, 1, 1) == '@' then
    return tonumber(string.sub(when, 2))
  end
  return ceil_ms + tonumber(when)
end

-- create makes jobs of lists of `id record` and of `score id`; earliest is the lowest score.
local function create(created, records, scores, earliest)
  call('HSET', jobs, unpack(records)) -- the first write: what is out of memory stops here
  local head = call('ZRANGE', due, '0', '0', 'WITHSCORES')
  -- What an orphan of the same ID, or the job before, may have left.
  if call('HLEN', leases) > 0 then
    call('HDEL', leases, unpack(created))
  end
  if call('HLEN', counts) > 0 then
    call('HDEL', counts, unpack(created))
  end
  if call('HLEN', errors) > 0 then
    call('HDEL', errors, unpack(created))
  end
  call('ZADD', due, unpack(scores))
  if not head[2] or earliest < score(head[2]) then
    wake_up(wake)
  end
end

-- Most calls make jobs that are all new and within all limits, and have no limits of their own.
local function all_new()
  if max_payload and ARGV[3] + 0 > max_payload or max_headers and ARGV[5] + 0 > max_headers or n > room or ARGV[9] ~= '' then
    return nil
  end
  local records, scores, made = {unpack(ARGV, 10)}, {unpack(ARGV, 10)}, {}
  local earliest, last_when, last_score
  for i, id in ipairs(ids) do
    if in_due[i] or in_processing[i] or in_dead[i] or in_done[i] or made[id] then
      return nil
    end
    local when = whens and whens[i] or ARGV[8]
    if when ~= last_when then
      local at = time(when)
      if at - ceil_ms > max_delay then
        return nil
      end
      earliest = earliest and math.min(earliest, at) or at
      last_when, last_score = when, when == '0' and now_text or int(at)
    end
    made[id] = true
    scores[2 * i - 1], scores[2 * i] = last_score, id
  end
  create(ids, records, scores, earliest)
  call('HINCRBY', stats, 'enqueued', n == 1 and '1' or int(n))
  return string.rep('c', n)
end

-- each_alone looks at one job after the other.
local function each_alone() -- rare
  -- over reads a list of sizes, if the largest of it is over a limit.
  local function over(limit, largest, list)
    if not limit or tonumber(largest) <= limit then
      return nil
    end
    local out = {}
    for size in string.gmatch(list, '%d+') do
      out[#out + 1] = tonumber(size)
    end
    return out
  end
  local sizes, headers = over(max_payload, ARGV[3], ARGV[4]), over(max_headers, ARGV[5], ARGV[6])
  local ended -- what was acked at this time, or before, is not kept any more, whether or not a sweeper has come
  if next(in_done) ~= nil then
    ended = done_over(policy, floor_ms)
  end

  local owns = {}
  for own in string.gmatch(ARGV[9], '([^\n]*)\n') do
    owns[#owns + 1] = own
  end

  -- made is where in the lists that follow an ID of this call is: one that comes again, and replaces, is there once.
  local codes, made, created, records, scores, ats, own = {}, {}, {}, {}, {}, {}, {}
  local from_dead, from_done = {}, {}
  local n_created, n_replaced, n_forgotten, last_at, last_score, refused = 0, 0, 0, nil, nil, false
  for n = 1, #ids do
    local id, when = ids[n], whens and whens[n] or ARGV[8]
    local old = (made[id] or in_due[n]) and '1' or in_processing[n] and '2' or in_dead[n] and '3'
    local rests = not old and in_done[n] and score(in_done[n])
    if rests and not (ended and rests <= ended) then
      old = '4'
    end
    local replaces = old and old ~= '2' and string.sub(ARGV[7], n, n) == 'r'
    local at = time(when)
    if old and not replaces then
      codes[n] = old
    elseif sizes and sizes[n] > max_payload then
      codes[n], refused = 't', true
    elseif headers and headers[n] > max_headers then
      codes[n], refused = 'h', true
    elseif at - ceil_ms > max_delay then
      codes[n], refused = 'l', true
    elseif room < 1 and not replaces then
      codes[n], refused = 'f', true
    else
      local k = made[id] or #created + 1
      if at ~= last_at then
        last_at, last_score = at, int(at)
      end
      if replaces then
        codes[n], n_replaced = 'p', n_replaced + 1
        room = old == '1' and room or room - 1 -- for those that follow
      else
        codes[n], n_created, room = 'c', n_created + 1, room - 1
      end
      if old == '3' then
        from_dead[#from_dead + 1] = id
      elseif rests then
        from_done[#from_done + 1] = id
        n_forgotten = n_forgotten + (old and 0 or 1)
      end
      made[id], created[k], ats[k], own[k] = k, id, at, owns[n] or ''
      records[2 * k - 1], records[2 * k] = id, ARGV[2 * n + 9]
      scores[2 * k - 1], scores[2 * k] = last_score, id
    end
  end

  if #created > 0 then
    local earliest, owned = ats[1], {}
    for k = 1, #created do
      earliest = math.min(earliest, ats[k])
      if own[k] ~= '' then
        append(owned, created[k], '0 0 0 ' .. own[k])
      end
    end
    create(created, records, scores, earliest)
    each(1, 'ZREM', dead, from_dead)
    each(1, 'ZREM', done, from_done)
    each(1, 'HDEL', results, from_done)
    each(2, 'HSET', counts, owned)
    for name, count in pairs({enqueued = n_created, replaced = n_replaced, forgotten = n_forgotten}) do
      if count > 0 then
        call('HINCRBY', stats, name, count)
      end
    end
  end
  local rest = table.concat(codes)
  if refused then
    for _, limit in ipairs({max_payload or -1, max_headers or -1, max_delay, max_length or -1}) do
      rest = rest .. ' ' .. (limit < 0 and '-' or int(limit))
    end
  end
  return rest
end

local rest = all_new() or each_alone()
session_store(sessions, ARGV[1], ARGV[2], now_text, rest)
return {'OK', rest}
