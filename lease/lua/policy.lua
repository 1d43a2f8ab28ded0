-- policy: publishes the queue's limits, which every script follows; the newest wins, but for what somebody has pinned
-- KEYS: sessions policy wake
-- ARGV: what holder digest, then per item: field value
-- ANSWER: OK version changed
-- what is a version, or '' for one that is made of the server's clock: the same values again change nothing. `absent` is
-- as '' where no deployment has published, and else changes nothing. `pin`: the values hold until they are unpinned,
-- whatever is published. `unpin`: what was published last holds again; the values are not read. A deployment has a digest
-- of what it publishes, which is noted with its holder's name and the time for ten minutes, so that two that differ are seen.
-- A limit of what claims may give that has changed wakes somebody up. Where done_age_ms is switched off, done_age_before_ms
-- keeps what it was, for the jobs that are in done.
local sessions, policy, wake = unpack(KEYS)
call('HDEL', sessions, '')
local what, digest, now = ARGV[1], ARGV[3], now_us()
local now_ms = math.floor(now / 1000)
local stored, pinned, flat = {}, {}, call('HGETALL', policy)
for i = 1, #flat, 2 do
  stored[flat[i]] = flat[i + 1]
end
for field in string.gmatch(stored.pinned or '', '%S+') do
  pinned[field] = true
end
local old = tonumber(stored.version or '0')
local version = tonumber(what) or math.max(now, old + 1)

if digest ~= '' then
  for field, text in pairs(stored) do
    if string.sub(field, 1, 5) == 'seen_' and (tonumber(string.match(text, '^%d+')) or 0) < now_ms - 600000 then
      call('HDEL', policy, field)
    end
  end
  call('HSET', policy, 'seen_' .. digest, int(now_ms) .. '\t' .. ARGV[2] .. '\t' .. table.concat(ARGV, ' ', 4))
end
if version <= old or (what == 'absent' and old > 0 and (stored.deployed or not next(pinned))) then
  return {'OK', int(old), 0}
end

local HOLDS_BACK = {concurrency = true, rate = true, rate_interval_ms = true}
local writes, removals, wakes = {'version', int(version)}, {}, false
local function put(field, value)
  if stored[field] == value then
    return
  end
  if field == 'done_age_ms' and whole(stored[field], 0) > 0 and whole(value, 0) == 0 then
    put('done_age_before_ms', stored[field])
  end
  wakes = wakes or HOLDS_BACK[field] and (stored[field] or '-') ~= (value or '-')
  stored[field] = value
  if value then
    append(writes, field, value)
  else
    removals[#removals + 1] = field
  end
end
for i = 4, #ARGV, 2 do
  local field, value = ARGV[i], ARGV[i + 1]
  local beneath = 'deployed_' .. field -- what is published while it is pinned
  if what == 'pin' then
    if not pinned[field] then
      put(beneath, stored[field])
    end
    pinned[field] = true
    put(field, value)
  elseif what ~= 'unpin' then
    put(pinned[field] and beneath or field, value)
  elseif pinned[field] then
    put(field, stored[beneath])
    put(beneath, nil)
    pinned[field] = nil
  end
end
local names = {}
for field in pairs(pinned) do
  names[#names + 1] = field
end
table.sort(names)
put('pinned', #names > 0 and table.concat(names, ' ') or nil)
local changed = (#writes > 2 or #removals > 0) and 1 or 0
if changed == 0 and not tonumber(what) then
  return {'OK', int(old), 0}
end
if what ~= 'pin' and what ~= 'unpin' then
  put('deployed', '1')
end
each(1, 'HDEL', policy, removals)
call('HSET', policy, unpack(writes))
if wakes then
  wake_up(wake)
end
return {'OK', int(version), changed}
