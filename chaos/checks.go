package chaos

// The checks, by name. Behind each: the invariant of docs/protocol.md that it is, and how it is told from outside.
const (
	CheckHistory    = "history"
	CheckClocks     = "clocks"
	CheckPlaces     = "places"
	CheckLeases     = "leases"
	CheckSettles    = "settles"
	CheckFences     = "fences"
	CheckOverlap    = "overlap"
	CheckEarly      = "early-expiry"
	CheckDue        = "due"
	CheckCounts     = "counts"
	CheckLost       = "lost"
	CheckLate       = "late-expiry"
	CheckAgain      = "again"
	CheckAnswers    = "answers"
	CheckStarts     = "starts"
	CheckDeadlines  = "deadlines"
	CheckUnexpected = "unexpected"
	CheckCauses     = "causes"
	CheckStats      = "stats"
)

// described is every check, in the order of the report.
var described = []Result{
	{Name: CheckHistory, What: "every line belongs to what the process did before: an end has its start, an answer its call"},
	{Name: CheckClocks, What: "each process' clock and the server's fit together, steps that were made on purpose aside"},
	{Name: CheckPlaces, Invariant: 1, What: "at the end an ID is in one place or in none; places have records, and records places"},
	{Name: CheckLeases, Invariant: 2, What: "at the end exactly the IDs in processing have a lease"},
	{Name: CheckSettles, Invariant: 3, What: "at most one settle succeeds for each claim, and none after the lease ran out and was taken"},
	{Name: CheckFences, Invariant: 4, What: "no fence is given twice, and those of a job grow"},
	{Name: CheckOverlap, Invariant: 5, What: "no claim of a job while the lease before it is held"},
	{Name: CheckEarly, Invariant: 5, What: "no lease is expired before its stored expiry"},
	{Name: CheckDue, Invariant: 6, What: "no job is claimed before it is due, nor due before its delay is over"},
	{Name: CheckCounts, Invariant: 7, What: "failures, expiries, redrives and the attempt are what happened"},
	{Name: CheckLost, Invariant: 8, What: "a job whose enqueue was answered is acked, removed on purpose, or in a place"},
	{Name: CheckLate, Invariant: 9, What: "a lease that ran out is expired in time"},
	{Name: CheckAgain, Invariant: 10, What: "nothing that was acked is delivered again, or still there"},
	{Name: CheckAnswers, Invariant: 11, What: "what an answer or Resolve said is true: not ran did not run, created was created once"},
	{Name: CheckStarts, Invariant: 12, What: "with a free slot and a due job a claim follows in time"},
	{Name: CheckDeadlines, Invariant: 13, What: "no handler's context lives on after its local deadline"},
	{Name: CheckUnexpected, What: "no job that nobody enqueued is delivered, or there at the end"},
	{Name: CheckCauses, What: "a lease runs out only where a fault, a pause or a timeout explains it: duplicates are bounded"},
	{Name: CheckStats, What: "the counters balance, and fit the history"},
}
