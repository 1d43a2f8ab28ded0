-- stats: how many jobs are where, and the counters; writes nothing
-- KEYS: due processing dead done jobs sessions sweep policy stats
-- ARGV: none
-- ANSWER: OK due claimable processing expired dead done records sessions oldest_due_ms next_expiry_ms swept_ms paused_ms stats...
-- The three times are relative to now: how long the head of due has been claimable, how long until the next expiry,
-- how long since a sweep; -1 where there is none. paused_ms is how long the queue is still paused: 0 until it is resumed,
-- -1 where it is not.
local due, processing, dead, done, jobs, sessions, sweep, policy, stats = unpack(KEYS)
local now_ms = math.floor(now_us() / 1000)
local oldest, next_expiry, swept = -1, -1, -1
local head = call('ZRANGE', due, 0, 0, 'WITHSCORES')
if head[2] then
  oldest = math.min(math.max(0, now_ms - score(head[2])), 1e12)
end
head = call('ZRANGE', processing, 0, 0, 'WITHSCORES')
if head[2] then
  next_expiry = math.min(math.max(0, score(head[2]) - now_ms), 1e12)
end
local last = tonumber(call('HGET', sweep, 'swept') or '')
if last then
  swept = math.max(0, now_ms - last)
end
local pause = pause_left(published(policy, 'paused_until_ms'), now_ms)
return {'OK', call('ZCARD', due), call('ZCOUNT', due, '-inf', int(now_ms)), call('ZCARD', processing),
  call('ZCOUNT', processing, '-inf', int(now_ms)), call('ZCARD', dead), call('ZCARD', done), call('HLEN', jobs),
  call('HLEN', sessions), oldest, next_expiry, swept,
  pause and math.min(pause, 1e12) or -1, call('HGETALL', stats)}
