package mutation

const (
	calling = "internal/script/call.go"
	keeper  = "lease/keeper.go"
)

// removal are the edits that take the removal away from the head of every script that has it.
func removal(files ...string) []Edit {
	var out []Edit
	for _, file := range files {
		out = append(out, Edit{File: "lease/lua/" + file + ".lua", Old: "call('HDEL', sessions, '')\n"})
	}
	return out
}

// Processes are the mutants of what runs in the processes, and of what the lists of calls cannot see.
var Processes = []Mutant{
	{"what was handed over is noted as seen", drop(calling, "\t\tc.sess.seen = max(c.sess.seen, c.Fences)\n"), Calls},
	{"a call whose caller left is sealed", swap(calling, "\t\tcase c.phase == running:\n\t\t\tc.seal(s, nil)\n", "\t\tcase c.phase == running:\n\t\t\tc.end(fmt.Errorf(\"%w: %w\", ErrNeverRan, cause))\n"), Storm("hasty")},
	{"NOSESSION to a repeat leaves the outcome unknown", swap(calling, `status == "NOSESSION" && c.phase == running && !c.maybe:`, `status == "NOSESSION" && c.phase == running:`), Named("internal/script", "TestSessionLostBetweenTwoTriesLeavesTheOutcomeUnknownForEver")},
	{"a wake-up without a free slot is passed on", swap("reliable/dispatch.go", "\t\tr.owed = false\n\t\tr.passOn()\n", "\t\tr.owed = false\n"), Named("reliable", "TestAWakeUpThatCannotBeAnsweredWithAClaimIsPassedOnAtOnce")},
	{"the timer for the next due time", swap("reliable/dispatch.go", "r.due.Reset(max(time.Until(at), 0) + rand.N(dueJitter))", "_ = max(time.Until(at), 0) + rand.N(dueJitter)"), Named("reliable", "TestAJobThatFallsDueWhileItsTimerIsWithABusyConsumerStartsElsewhere")},
	{"the local deadline ends the handler's context", swap(keeper, "\th.state = HoldOverdue\n\th.ctx.Cancel(ErrLost)\n", "\th.state = HoldOverdue\n"), Storm("silent")},
	{"the keeper extends", swap("lease/beat.go", "\tif !k.opts.NoExtend {\n\t\tloops", "\tif k.opts.NoExtend {\n\t\tloops"), Storm("idle")},
	{"deadlines count from the send", swap("lease/claim.go", "Length: out.Length, Deadline: call.SentAt.Add(out.Length),", "Length: out.Length, Deadline: time.Now().Add(out.Length),"), Named("lease", "TestDeadlinesCountFromBeforeTheTryThatWasAnswered")},
	{"every script removes first", removal("claim", "settle", "extend", "expire"), Named("lease", "(TestEveryCallButEnqueueRunsToItsEndWhenMemoryIsFull|TestBooksBalanceAfterAThousandMixedCallsAtTheLimitOfMemory)")},
	{"fences follow the clock", swap(claim, "first = math.max(now, next_fence)", "first = next_fence"), Calls},
	{"fences grow though the clock does not", swap(claim, "first = math.max(now, next_fence)", "first = now"), Named("lease", "TestFencesHaveSixteenDigitsAndGrowStrictly")},
	{"a lease is never shorter than promised (rounding up)", swap(claim, "int(ceil_ms + lease)", "int(floor_ms + lease)"), Calls},
	{"a delay is never shorter than asked (rounding up)", swap(enqueue, "return ceil_ms + tonumber(when)", "return floor_ms + tonumber(when)"), Named("internal/cases", "TestS64_StoredTimesAreRoundedUpNeverDown")},
	{"what a claim brought to a caller that left is sealed", swap("internal/script/flight.go", "if pending == 0 && !f.sealUnseen() {", "if pending == 0 {"), Named("lease", "TestACallerThatLeavesDuringAClaimGivesTheJobsBack")},
	{"the client does not repeat scripts by itself", swap("internal/script/send.go", "NoRetry() bool { return true }", "NoRetry() bool { return false }"), Named("internal/script", "TestTheClientDoesNotRepeatAScriptByItself")},
	{"sweepers sleep for a quarter of a lease at most", swap("lease/sweeper.go", "wait := min(got.Lease/4, maxPause)", "wait := got.Lease"), Named("lease", "TestHowLongASweeperSleeps")},
}
