-- erase: deletes all keys of a partition in which no job is left; safe to run twice
-- KEYS: sessions due processing dead done jobs leases counts errors results fence holders sweep wake rate policy stats
-- ARGV: none
-- ANSWER: OK left keys
-- left is how many jobs are in a place: where there are any, nothing is deleted. keys is how many keys were deleted;
-- the server frees in the background what they held. A call of a session that comes later answers NOSESSION.
local sessions, due, processing, dead, done, jobs, leases, counts, errors, results, fence, holders, sweep, wake, rate, policy, stats = unpack(KEYS)
call('HDEL', sessions, '')
local left = call('ZCARD', due) + call('ZCARD', processing) + call('ZCARD', dead) + call('ZCARD', done)
local gone = 0
if left == 0 then
  for _, key in ipairs({jobs, leases, counts, errors, results, wake, rate, sweep, policy, stats, holders, fence, sessions}) do
    gone = gone + call('UNLINK', key)
  end
end
return {'OK', left, gone}
