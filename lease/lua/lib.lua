-- lib of the lease scripts: what more than one transition needs.

-- What holds where nothing was published.
local DEFAULT_LEASE_MS = 15000
local DEFAULT_RATE_INTERVAL_MS = 1000
local DEFAULT_MAX_DELAY_MS = 604800000
local DEFAULTS = {
  lease_ms = DEFAULT_LEASE_MS, max_retries = 20, max_expiries = 5, expiry_backoff_base_ms = 0, expiry_backoff_cap_ms = 0, max_delay_ms = DEFAULT_MAX_DELAY_MS,
  rate_interval_ms = DEFAULT_RATE_INTERVAL_MS,
}

-- STRETCH is no job: longer than what Redis keeps in its compact form of a ZSET, which it searches from one end to the
-- other. A claim of many jobs puts it into processing and takes it out again, which leaves the form whose members are found
-- at once.
local STRETCH = '\1----------------------------------------------------------------'

-- none_counted says that no job has counts, which the half of a joined script has found out that ran first.
local none_counted = false

-- whole reads a number of the queue's policy. What is no whole number, as `-` for a limit that was taken away, is not
-- published: then otherwise holds.
local function whole(text, otherwise)
  local value = text and tonumber(text)
  return value and value >= 0 and value < 9e15 and value % 1 == 0 and value or otherwise
end

-- published reads numbers of the queue's policy, nil where there is no such limit.
local function published(policy, ...)
  local values = call('HMGET', policy, ...)
  for i = 1, select('#', ...) do
    values[i] = whole(values[i], DEFAULTS[select(i, ...)])
  end
  return unpack(values, 1, select('#', ...))
end

-- score reads a ZSET's score; Lua knows no word for infinity.
local function score(text)
  return tonumber(text) or (text == 'inf' and math.huge or -math.huge)
end

-- What claims keep of the policy is read once in a script: a settle in the same one needs some of it, too.
local claim_limits_read
local function claim_limits(policy)
  claim_limits_read = claim_limits_read or call('HMGET', policy, 'lease_ms', 'payload_limit', 'paused_until_ms', 'concurrency',
    'rate', 'rate_interval_ms', 'rate_next_us', 'done_age_ms')
  return claim_limits_read
end

-- places_freed wakes somebody up where jobs have waited for a place in processing, which has become free: the queue's
-- concurrency is limited, and a job is due.
local function places_freed(concurrency, due, wake, now_ms)
  if concurrency and concurrency > 0 then
    local head = call('ZRANGE', due, 0, 0, 'WITHSCORES')
    if head[2] and score(head[2]) <= now_ms then
      wake_up(wake)
    end
  end
end

-- pause_left is for how many ms more a queue is paused: 0 until it is resumed, nil where it is not paused.
local function pause_left(until_ms, now_ms)
  if until_ms == 0 then
    return 0
  end
  return until_ms and until_ms > now_ms and until_ms - now_ms or nil
end

-- append adds two values to a flat list.
local function append(list, a, b)
  list[#list + 1] = a
  list[#list + 1] = b
end

-- hmget reads one field of each ID, in chunks that Lua's stack can hold.
local function hmget(hash, ids)
  local out = {}
  for i = 1, #ids, 1000 do
    local last = math.min(i + 999, #ids)
    local page = call('HMGET', hash, unpack(ids, i, last))
    for j = 1, last - i + 1 do
      out[i + j - 1] = page[j]
    end
  end
  return out
end

-- each runs a variadic command over a list of `width` values per item, in chunks that Lua's stack can hold.
local function each(width, command, key, list)
  local step = 1000 * width
  for i = 1, #list, step do
    call(command, key, unpack(list, i, math.min(i + step - 1, #list)))
  end
end

-- The text form of counts: failures expiries redrives max_retries max_expiries not_after, `-` where the queue's holds.
local function counts_read(text)
  if not text then
    return 0, 0, 0, '- - -'
  end
  local f, e, r, own = string.match(text, '^(%d+) (%d+) (%d+) (%S+ %S+ %S+)$')
  return tonumber(f or 0), tonumber(e or 0), tonumber(r or 0), own or '- - -'
end

local function counts_write(f, e, r, own)
  return int(f) .. ' ' .. int(e) .. ' ' .. int(r) .. ' ' .. own
end

-- own_limits reads a job's own MaxRetries and MaxExpiries out of counts, nil where the queue's hold.
local function own_limits(own)
  local retries, expiries = string.match(own, '^(%S+) (%S+)')
  return tonumber(retries), tonumber(expiries)
end

-- error_add adds one line to a job's last errors: the newest five are kept, and of stacks only the one given.
local function error_add(errors, id, now_ms, attempt, holder, reason, stack)
  local lines = {}
  local old = call('HGET', errors, id)
  if old then
    for line in string.gmatch((string.gsub(old, '\n\n.*$', '')), '[^\n]+') do
      lines[#lines + 1] = line
    end
  end
  while #lines > 4 do
    table.remove(lines, 1)
  end
  lines[#lines + 1] = int(now_ms) .. '\t' .. int(attempt) .. '\t' .. holder .. '\t' .. reason
  local text = table.concat(lines, '\n')
  if stack ~= '' then
    text = text .. '\n\n' .. stack
  end
  call('HSET', errors, id, text)
end

-- holder_of names who holds a token.
local function holder_of(holders, token)
  local session = token and string.match(token, '^!?%d+:([^:]+):')
  return session and call('HGET', holders, session) or ''
end

-- no_record puts IDs that lack a record into dead, with a stub in the record's place. The caller has removed them from
-- where they were.
local function no_record(ids, now_ms, stub, dead, jobs, errors, stats)
  for _, id in ipairs(ids) do
    call('ZADD', dead, int(now_ms), id)
    call('HSET', jobs, id, stub)
    error_add(errors, id, now_ms, 0, '', 'no record', '')
  end
  if #ids > 0 then
    call('HINCRBY', stats, 'missing', #ids)
    call('HINCRBY', stats, 'died', #ids)
  end
end

-- keep_done puts acked jobs into done. given are the results that handlers gave: id, result. No other job of these IDs has one.
local function keep_done(ids, given, now_ms, done, results)
  local members, at = {}, int(now_ms)
  for _, id in ipairs(ids) do
    append(members, at, id)
  end
  each(2, 'ZADD', done, members)
  if call('HLEN', results) > 0 then
    each(1, 'HDEL', results, ids)
  end
  each(2, 'HSET', results, given)
end

-- done_over is until when jobs were acked that have been in done for long enough, in ms. Where retention was switched off, those
-- that are there still have the time that held before; nil where nobody ever said how long: they stay.
local function done_over(policy, now_ms)
  local age, before = published(policy, 'done_age_ms', 'done_age_before_ms')
  age = age and age > 0 and age or before
  return age and now_ms - age
end

-- attachments reads what a call says of each of its records: item owner ttl_ms mark n, then n times field value. It
-- returns that in the order of the records, and where in ARGV the items begin.
local function attachments(records, args, at)
  local out = {}
  for place = 1, #records do
    local last = at + 4 + 2 * tonumber(args[at + 4])
    out[place] = {
      place = place, item = tonumber(args[at]), owner = args[at + 1], ttl = args[at + 2], mark = args[at + 3],
      first = at + 5, last = last,
    }
    at = last + 1
  end
  return out, at
end

-- record_owned says whether a record has the owner that a call takes for it. What is no record, by somebody's hand, has
-- none.
local function record_owned(record, owner)
  return call('TYPE', record).ok == 'hash' and call('HGET', record, 'owner') == owner
end

-- record_change sets the fields that a call gives for a record, and its time to live.
local function record_change(record, args, one)
  if one.first < one.last then
    call('HSET', record, unpack(args, one.first, one.last))
  end
  if one.ttl ~= '0' then
    call('PEXPIRE', record, one.ttl)
  end
end

-- places says for each ID where it is: '1' due, '2' processing, '3' dead, '4' done, '0' nowhere.
local function places(ids, due, processing, dead, done)
  local out = {}
  if #ids == 0 then
    return out
  end
  local one, two = call('ZMSCORE', due, unpack(ids)), call('ZMSCORE', processing, unpack(ids))
  local three, four = call('ZMSCORE', dead, unpack(ids)), call('ZMSCORE', done, unpack(ids))
  for i = 1, #ids do
    out[i] = one[i] and '1' or two[i] and '2' or three[i] and '3' or four[i] and '4' or '0'
  end
  return out
end
