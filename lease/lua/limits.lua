-- limits: all that is known of the queue's policy; writes nothing
-- KEYS: policy
-- ARGV: none
-- ANSWER: OK fields
local policy = unpack(KEYS)
return {'OK', call('HGETALL', policy)}
