-- settle: ends leases, one answer per item; a lease that is no longer the caller's is left alone
-- KEYS: sessions due processing dead done jobs leases counts errors results policy stats wake holders records…
-- ARGV: session number stub, then per record: item owner ttl_ms mark n field value, then per item: a id token | k id token result | n id token when reason stack | r id token when mark | b id token reason stack
-- ANSWER: OK codes | AGAIN codes | STALE | NOSESSION
-- CODES: o acked; d put to due; x put to dead; c cancelled; 1 2 3 4 lost: in due, processing, dead, done; 0 gone;
--   r an ack refused, since its record has another owner
-- a is ack, k an ack with a result, n nack, r release, b bury. Where the policy has a done_age_ms above 0 an acked job goes to
-- done, with its result, if it has one; its record, counts and errors go in any case. when is a delay in ms or @ and a time in
-- ms. mark is '' or a counter to raise. stub stands in for the record of a job that dies without one. A record is an item's attached one, by the item's
-- number from 1, and is changed only if its owner is the given one: the n fields are set, and its time to live unless that
-- is 0; or, where the mark is own (it is the job's), it is deleted with a cancelled job.
local sessions, due, processing, dead, done, jobs, leases, counts, errors, results, policy, stats, wake, holders = unpack(KEYS)
local records = {unpack(KEYS, 15)}
call('HDEL', sessions, '')
local answer = session_check(sessions, ARGV[1], ARGV[2])
if answer then
  return answer
end
local now, now_text = now_us()

-- keeps says whether acked jobs go to done. It reads what settles need of the policy, once.
local concurrency, done_age
local function keeps()
  if concurrency == nil and joined then
    local limits = claim_limits(policy) -- the claim behind it needs them all
    concurrency, done_age = limits[4], limits[8]
  elseif concurrency == nil then
    local limits = call('HMGET', policy, 'concurrency', 'done_age_ms')
    concurrency, done_age = limits[1], limits[2]
  end
  return done_age and whole(done_age, 0) > 0
end

local function free_places()
  keeps()
  places_freed(whole(concurrency), due, wake, math.floor(now / 1000))
end

local function keep(ids) -- rare
  keep_done(ids, {}, math.floor(now / 1000), done, results)
end

-- Most calls hold acks alone, of leases that are all their holders': these need no look at each.
local function acks()
  local last = #ARGV
  local n = (last - 3) / 3
  if n % 1 ~= 0 then
    return nil
  end
  local ids = {unpack(ARGV, 4, n + 3)} -- a table with room for them
  for i = 1, n do
    if ARGV[3 * i + 1] ~= 'a' then
      return nil
    end
    ids[i] = ARGV[3 * i + 2]
  end
  for i, token in ipairs(call('HMGET', leases, unpack(ids))) do
    if token ~= ARGV[3 * i + 3] then
      return nil
    end
  end
  call('ZREM', processing, unpack(ids))
  local gone = call('HDEL', leases, unpack(ids))
  call('HDEL', jobs, unpack(ids))
  none_counted = call('HLEN', counts) == 0
  if not none_counted then
    call('HDEL', counts, unpack(ids))
  end
  if call('HLEN', errors) > 0 then
    call('HDEL', errors, unpack(ids))
  end
  call('HINCRBY', stats, 'acked', gone == 1 and '1' or int(gone))
  local left = '0'
  if keeps() then
    keep(ids)
    left = '4'
  end
  free_places()
  if gone == n then
    return string.rep('o', n)
  end
  local codes, seen = {}, {} -- an ID is in the batch more than once: only the first use finds the job
  for i, id in ipairs(ids) do
    codes[i], seen[id] = seen[id] and left or 'o', true
  end
  return table.concat(codes)
end

local function general() -- rare
  local floor_ms, ceil_ms = math.floor(now / 1000), math.ceil(now / 1000)
  local WIDTH = {a = 3, k = 4, n = 6, r = 5, b = 5}

  local starts, ids, attached, at = {}, {}, {}, 4
  if #records > 0 then
    local given
    given, at = attachments(records, ARGV, 4)
    for _, one in ipairs(given) do
      attached[one.item] = one
    end
  end
  local count, last = 0, #ARGV
  while at <= last do
    count = count + 1
    starts[count], ids[count] = at, ARGV[at + 1]
    at = at + WIDTH[ARGV[at]]
  end
  local token_of = {}
  for i, token in ipairs(call('HMGET', leases, unpack(ids))) do
    token_of[ids[i]] = token
  end

  local codes, left, strangers, stranger_ids = {}, {}, {}, {}
  local ended, removed, acked, given, to_due, to_dead = {}, {}, {}, {}, {}, {}
  local tally = {acked = 0, nacked = 0, released = 0, buried = 0, cancelled = 0, newer = 0, died = 0, missing = 0, refused_records = 0}
  local max_retries, earliest

  local function when(text)
    if string.sub(text, 1, 1) == '@' then
      return score(string.sub(text, 2))
    elseif text == '0' then
      return floor_ms
    end
    return ceil_ms + tonumber(text)
  end

  local function back(id, time)
    append(to_due, int(time), id)
    if not earliest or time < earliest then
      earliest = time
    end
  end

  -- failed counts a failure and says whether the job has used up its retries.
  local function failed(id, token, reason, stack, bury)
    local f, e, r, own = counts_read(call('HGET', counts, id))
    max_retries = max_retries or published(policy, 'max_retries')
    local dies = bury or f + 1 > (own_limits(own) or max_retries)
    error_add(errors, id, floor_ms, f + e + 1, holder_of(holders, token), reason, dies and stack or '')
    call('HSET', counts, id, counts_write(f + 1, e, r, own))
    if dies and call('HEXISTS', jobs, id) == 0 then
      call('HSET', jobs, id, ARGV[3]) -- the record is gone, by somebody's hand: the stub stands in for it
      tally.missing = tally.missing + 1
    end
    return dies
  end

  -- owned and change are about the record that is attached to an item.
  local function owned(one)
    local record = records[one.place]
    return record_owned(record, one.owner)
  end

  local function change(one, removed_as_cancelled)
    local record = records[one.place]
    if removed_as_cancelled and one.mark == 'own' then
      call('DEL', record)
    else
      record_change(record, ARGV, one)
    end
  end

  for n, start in ipairs(starts) do
    local op, id, token = ARGV[start], ids[n], ARGV[start + 2]
    local current = token_of[id]
    local cancelled = current ~= token and current == '!' .. token
    local one, result = attached[n], nil
    if op == 'k' then
      op, result = 'a', ARGV[start + 3]
    end
    local mine = one and owned(one)
    if current ~= token and not cancelled then
      if left[id] then
        codes[n] = left[id]
      else
        strangers[#strangers + 1], stranger_ids[#stranger_ids + 1] = n, id
      end
    elseif op == 'a' and one and not mine then
      codes[n] = 'r'
      tally.refused_records = tally.refused_records + 1
    else
      token_of[id] = false
      ended[#ended + 1] = id
      if mine then
        change(one, cancelled and op ~= 'a')
      end
      if op == 'a' then
        codes[n], left[id] = 'o', keeps() and '4' or '0'
        removed[#removed + 1], acked[#acked + 1] = id, id
        if result then
          append(given, id, result)
        end
        tally.acked = tally.acked + 1
      elseif cancelled then
        codes[n], left[id] = 'c', '0'
        removed[#removed + 1] = id
        tally.cancelled = tally.cancelled + 1
      elseif op == 'r' then
        codes[n], left[id] = 'd', '1'
        back(id, when(ARGV[start + 3]))
        tally.released = tally.released + 1
        if tally[ARGV[start + 4]] then
          tally[ARGV[start + 4]] = tally[ARGV[start + 4]] + 1
        end
      elseif op == 'n' then
        tally.nacked = tally.nacked + 1
        if failed(id, token, ARGV[start + 4], ARGV[start + 5], false) then
          codes[n], left[id] = 'x', '3'
          append(to_dead, int(floor_ms), id)
        else
          codes[n], left[id] = 'd', '1'
          back(id, when(ARGV[start + 3]))
        end
      else
        codes[n], left[id] = 'x', '3'
        tally.buried = tally.buried + 1
        failed(id, token, ARGV[start + 3], ARGV[start + 4], true)
        append(to_dead, int(floor_ms), id)
      end
    end
  end

  if #stranger_ids > 0 then
    for i, place in ipairs(places(stranger_ids, due, processing, dead, done)) do
      codes[strangers[i]] = place
    end
  end

  -- Removal comes first, so that a job is never in two places. Most queues have no counts and no errors.
  each(1, 'ZREM', processing, ended)
  each(1, 'HDEL', leases, ended)
  if #removed > 0 then
    each(1, 'HDEL', jobs, removed)
    for _, hash in ipairs({counts, errors}) do
      if call('HLEN', hash) > 0 then
        each(1, 'HDEL', hash, removed)
      end
    end
  end
  if #acked > 0 and keeps() then
    keep_done(acked, given, floor_ms, done, results)
  end
  if earliest then
    local head = call('ZRANGE', due, 0, 0, 'WITHSCORES')
    each(2, 'ZADD', due, to_due)
    if earliest <= floor_ms or not head[2] or earliest < score(head[2]) then
      wake_up(wake)
    end
  end
  if #ended > 0 then
    free_places()
  end
  each(2, 'ZADD', dead, to_dead)
  tally.died = #to_dead / 2
  tally.refused = #stranger_ids
  tally.cancelled_processing = tally.cancelled
  for name, count in pairs(tally) do
    if count > 0 then
      call('HINCRBY', stats, name, count)
    end
  end
  return table.concat(codes)
end

local rest = #records == 0 and acks() or general()
session_store(sessions, ARGV[1], ARGV[2], now_text, rest)
return {'OK', rest}
