package mutation

// drop is an edit that leaves nothing.
func drop(file, old string) []Edit { return swap(file, old, "") }

func swap(file, old, with string) []Edit { return []Edit{{File: file, Old: old, New: with}} }

const (
	library = "internal/script/lua/lib.lua"
	claim   = "lease/lua/claim.lua"
	settle  = "lease/lua/settle.lua"
	expire  = "lease/lua/expire.lua"
	extend  = "lease/lua/extend.lua"
	enqueue = "lease/lua/enqueue.lua"
)

// Scripts are the mutants of what Redis runs.
var Scripts = []Mutant{
	{"settle compares the token", swap(settle, `if current ~= token and not cancelled then`, `if not current then`), Calls},
	{"a second use of an ID in a batch sees what the first left", drop(settle, "    token_of[id] = false\n"), Calls},
	{"extend compares the token", swap(extend, `if current == token then`, `if current and string.sub(current, 1, 1) ~= '!' then`), Calls},
	{"an expiry never moves back", swap(extend, `'XX', 'GT', `, `'XX', `), Calls},
	{"expire compares the time", swap(expire, `'-inf', int(now_ms), 'LIMIT'`, `'-inf', '+inf', 'LIMIT'`), Calls},
	{"expire counts what ran out", swap(expire, `counts_write(f, e + 1, r, own)`, `counts_write(f, e, r, own)`), Calls},
	{"the outage grace", swap(expire, `if now_ms - swept > lease / 2 and row < 3 then`, `if false then`), Calls},
	{"at most three graces in a row", swap(expire, ` > lease / 2 and row < 3 then`, ` > lease / 2 then`), Calls},
	{"the same number gets the stored answer", drop(library, "  if number == last then\n    return {'AGAIN', rest}\n  end\n"), Calls},
	{"a smaller number is refused (STALE)", drop(library, "  if #number < #last or #number == #last and number < last then -- as numbers, without reading them\n    return {'STALE'}\n  end\n"), Calls},
	{"a session without a record is refused (NOSESSION)", swap(library, "    return {'NOSESSION'}\n", "    last, rest = '0', ''\n"), Calls},
	{"the seal leaves its number", drop("internal/script/lua/seal.lua", "session_store(sessions, ARGV[1], ARGV[2], now_us(), what)\n"), Calls},
	{"leases that nobody saw go back", swap(claim, "if old_first and old_n ~= '0' and old_first + old_n - 1 > seen then", "if false then"), Calls},
	{"of leases with one expiry only the session's own go back", swap(claim, "if owner == owner_of_all and tonumber(given) > highest then", "if tonumber(given) > highest then"), Named("lease", "TestOfWhatWasLeasedInOneMillisecondOnlyTheUnseenIsGivenBack")},
	{"of a session's leases only the unseen go back", swap(claim, "if owner == owner_of_all and tonumber(given) > highest then", "if owner == owner_of_all then"), Named("lease", "TestOfWhatWasLeasedInOneMillisecondOnlyTheUnseenIsGivenBack")},
	{"settle compares the token of an ack", swap(settle, `if token ~= ARGV[3 * i + 3] then`, `if not token then`), Calls},
	{"the byte budget of a claim", swap(claim, "ARGV[6] + 0", "1e15"), Calls},
	{"nothing is claimed before it is due", swap(claim, "while ready > 0 and score(flat[2 * ready]) > floor_ms do", "while false do"), Calls},
	{"a claim passes the wake-up on", drop(claim, "if next_due == 0 and take + freed > 0 then\n  wake_up(wake)\nend\n"), Calls},
	{"what goes back to due wakes somebody up", drop(settle, "    wake_up(wake)\n"), Calls},
	{"a paused queue gives nothing", swap(claim, "held, wanted = 'paused', 0", "held = 'paused'"), Calls},
	{"a claim leaves the places that are taken", swap(claim, "concurrency - call('ZCARD', processing)", "concurrency"), Calls},
	{"a place that is freed wakes somebody up", swap("lease/lua/lib.lua", "if head[2] and score(head[2]) <= now_ms then", "if false then"), Named("lease", "TestEachWayToFreeAPlaceWakesSomebodyUp")},
	{"a start counts for the rate", drop(claim, "    call('HSET', policy, 'rate_next_us', int(next_us))\n"), Calls},
	{"the mark of a cancelled job", drop("lease/lua/cancel.lua", "      call('HSET', leases, id, '!' .. tokens[i])\n      tokens[i] = '!' .. tokens[i]\n"), Calls},
	{"enqueue looks whether the job is being worked on", drop(enqueue, "or in_processing[n] and '2' "), Calls},
	{"so does the short way of enqueue", drop(enqueue, "in_processing[i] or "), Calls},
	{"an ID that a call has twice makes one job", drop(enqueue, "or made[id] "), Calls},
	{"the short way of enqueue is for jobs that have room", drop(enqueue, " or n > room"), Calls},
	{"limits of a job's own keep its call out of the short way", drop(enqueue, " or ARGV[9] ~= ''"), Calls},
	{"a job that is being worked on is never replaced", swap(enqueue, "old and old ~= '2' and string.sub", "old and string.sub"), Calls},
	{"a full queue takes no job", swap(enqueue, "elseif room < 1 and not replaces then", "elseif false then"), Calls},
	{"what is pinned holds against deployments", swap("lease/lua/policy.lua", "put(pinned[field] and beneath or field, value)", "put(field, value)"), Named("lease", "TestWhatIsPinnedHoldsAgainstDeploymentsUntilItIsUnpinned")},
	{"an acked job is kept where the queue keeps them", swap("lease/lua/lib.lua", "each(2, 'ZADD', done, members)", "each(2, 'ZADD', done, {})"), Calls},
	{"a finished job's time is over", swap(enqueue, "if rests and not (ended and rests <= ended) then", "if rests then"), Named("lease", "TestAnIDIsFreeInTheMillisecondInWhichItsTimeIsOver")},
	{"what is forgotten in done takes its result along", drop("lease/lua/retain.lua", "  each(1, 'HDEL', results, finished)\n"), Named("lease", "TestOfDoneJobsTheNewestAreKept")},
	{"retries end in dead", swap(settle, "local dies = bury or f + 1 > (own_limits(own) or max_retries)", "local dies = bury"), Calls},
}
