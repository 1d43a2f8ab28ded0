-- grab: gives out n numbers, as a claim gives out leases; what its session was given unseen is taken back first
-- KEYS: sessions fence stats
-- ARGV: session number seen n
-- ANSWER: OK first n | AGAIN what | STALE | NOSESSION
local sessions, fence, stats = unpack(KEYS)
call('HDEL', sessions, '')
local answer, rest = session_check(sessions, ARGV[1], ARGV[2])
if answer then
  return answer
end
local now, seen, n = now_us(), tonumber(ARGV[3]), tonumber(ARGV[4])
local old_first, old_n = string.match(rest, '^(%d+) (%d+)')
if old_first and tonumber(old_n) > 0 and tonumber(old_first) > seen then
  call('HINCRBY', stats, 'taken_back', old_n)
end
local first = math.max(now, tonumber(call('GET', fence) or '0') + 1)
if n > 0 then
  call('SET', fence, int(first + n - 1))
  call('HINCRBY', stats, 'grabbed', n)
end
session_store(sessions, ARGV[1], ARGV[2], now, int(first) .. ' ' .. int(n))
return {'OK', int(first), n}
