-- policy: publishes the queue's limits, which every script follows; the newest wins
-- KEYS: sessions policy
-- ARGV: version, then per item: field value
-- ANSWER: OK version changed
-- An empty version is made of the server's clock. The same values again change nothing. The version `absent` is as the
-- empty one where nothing is published, and does nothing where something is.
local sessions, policy = unpack(KEYS)
call('HDEL', sessions, '')
local stored = tonumber(call('HGET', policy, 'version') or '0')
local version = tonumber(ARGV[1]) or math.max(now_us(), stored + 1)
if version <= stored or (ARGV[1] == 'absent' and stored > 0) then
  return {'OK', int(stored), 0}
end
local changed = 0
for i = 2, #ARGV, 2 do
  if call('HGET', policy, ARGV[i]) ~= ARGV[i + 1] then
    changed = 1
  end
end
if changed == 0 and ARGV[1] == '' then
  return {'OK', int(stored), 0}
end
call('HSET', policy, 'version', int(version), unpack(ARGV, 2))
return {'OK', int(version), changed}
