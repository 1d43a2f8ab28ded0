-- delete: removes jobs of a queue that is to go, whatever place they are in, up to a number
-- KEYS: sessions due processing dead done jobs leases counts errors results stats
-- ARGV: session number n running
-- ANSWER: OK what | AGAIN what | STALE | NOSESSION
-- WHAT: removed ended processing left
-- running says what becomes of jobs in processing: `refuse` removes nothing at all where there are any, `leave` removes
-- all others, `end` removes them as well, after all others. removed is how many jobs went from due, dead and done, ended
-- how many from processing; processing and left are how many are still there.
local sessions, due, processing, dead, done, jobs, leases, counts, errors, results, stats = unpack(KEYS)
call('HDEL', sessions, '')
local answer = session_check(sessions, ARGV[1], ARGV[2])
if answer then
  return answer
end
local now = now_us()
local n, running = tonumber(ARGV[3]), ARGV[4]
if running == 'refuse' and call('ZCARD', processing) > 0 then
  n = 0
end
local removed, ended = 0, 0
for _, place in ipairs({due, dead, done}) do
  if removed < n then
    local ids = call('ZRANGE', place, 0, n - removed - 1)
    each(1, 'ZREM', place, ids)
    for _, hash in ipairs({jobs, counts, errors, results}) do
      each(1, 'HDEL', hash, ids)
    end
    removed = removed + #ids
  end
end
if running == 'end' and removed < n then
  local ids = call('ZRANGE', processing, 0, n - removed - 1)
  each(1, 'ZREM', processing, ids)
  for _, hash in ipairs({leases, jobs, counts, errors}) do
    each(1, 'HDEL', hash, ids)
  end
  ended = #ids
end
for name, count in pairs({purged = removed, cancelled = ended, cancelled_processing = ended}) do
  if count > 0 then
    call('HINCRBY', stats, name, count)
  end
end
local left = call('ZCARD', due) + call('ZCARD', dead) + call('ZCARD', done)
local what = int(removed) .. ' ' .. int(ended) .. ' ' .. int(call('ZCARD', processing)) .. ' ' .. int(left)
session_store(sessions, ARGV[1], ARGV[2], now, what)
return {'OK', what}
