package model

import "testing"

// With all safeguards nothing breaks, whatever the network, the processes and the sweepers do within the bounds.
func TestNumberedCallsAreSound(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name         string
		small, large CallsOptions
	}{
		{
			"claims and acks, answers lost and late, callers that leave",
			CallsOptions{Lanes: "co", Batch: 1, Waiting: 1, Claims: 2, Others: 1, Unknown: 2, Leavers: 1},
			CallsOptions{Lanes: "co", Batch: 2, Waiting: 2, Claims: 2, Others: 2, Unknown: 2, Leavers: 1, Buries: true},
		},
		{
			"batches, leases that run out, crashes, sessions that are forgotten, cancels",
			CallsOptions{Lanes: "co", Batch: 2, Waiting: 2, Claims: 1, Others: 1, Unknown: 1, Crashes: 1, Trims: 1, Expiries: 1, Cancels: 1},
			CallsOptions{Lanes: "co", Batch: 2, Waiting: 2, Claims: 1, Others: 1, Unknown: 2, Leavers: 1, Crashes: 1, Trims: 1, Expiries: 1, Cancels: 1},
		},
		{
			"one client with much going on",
			CallsOptions{Lanes: "co", Clients: 1, Batch: 2, Waiting: 2, Claims: 2, Others: 1, Unknown: 1, Leavers: 1, Trims: 1, Crashes: 1, Expiries: 1},
			CallsOptions{Lanes: "co", Clients: 1, Batch: 2, Waiting: 2, Claims: 2, Others: 1, Unknown: 2, Leavers: 1, Trims: 1, Crashes: 1, Expiries: 1, Cancels: 1},
		},
		{
			"two claims of a process at a time",
			CallsOptions{Lanes: "cco", Clients: 1, Batch: 1, Waiting: 2, Claims: 2, Others: 1, Unknown: 2, Leavers: 1, Expiries: 1},
			CallsOptions{Lanes: "cco", Batch: 1, Waiting: 2, Claims: 2, Others: 1, Unknown: 2, Leavers: 1},
		},
		{
			"two settles of a process at a time",
			CallsOptions{Lanes: "coo", Clients: 1, Batch: 2, Waiting: 2, Claims: 1, Others: 2, Unknown: 2, Leavers: 1, Buries: true},
			CallsOptions{Lanes: "coo", Batch: 2, Waiting: 2, Claims: 1, Others: 2, Unknown: 1, Leavers: 1, Buries: true, Expiries: 1},
		},
		{
			"enqueues of the same IDs, refusals",
			CallsOptions{Lanes: "co", Clients: 1, Batch: 1, Claims: 1, Others: 3, Unknown: 2, Leavers: 1, Refusals: 1, Creates: true},
			CallsOptions{Lanes: "co", Batch: 1, Claims: 1, Others: 2, Unknown: 1, Leavers: 1, Refusals: 1, Creates: true},
		},
		{
			"a client library that repeats by itself",
			CallsOptions{Lanes: "co", Batch: 1, Waiting: 1, Claims: 1, Others: 1, Unknown: 1, Repeats: 2, Leavers: 1},
			CallsOptions{Lanes: "co", Batch: 2, Waiting: 2, Claims: 2, Others: 1, Unknown: 1, Repeats: 1, Leavers: 1},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if !large() { // large searches need memory: one at a time
				t.Parallel()
			}
			o := c.small
			if large() {
				o = c.large
			}
			searchSound(t, NewCalls(o), 60_000_000)
		})
	}
}

// Without any one of the safeguards a broken state is a few steps away.
func TestNaiveCallsAreCaught(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		o      CallsOptions
		broken string
		steps  int
	}{
		{"smaller numbers run", CallsOptions{Lanes: "co", Waiting: 1, Claims: 2, Unknown: 2, Dropped: SmallerNumbers}, "a live lease was given back", 5},
		{"one session for settles and claims", CallsOptions{Lanes: "co", Clients: 1, Waiting: 2, Claims: 2, Others: 1, Unknown: 2, Dropped: OwnClaimSessions}, "never be known", 8},
		{"tokens name the process", CallsOptions{Lanes: "cc", Waiting: 2, Claims: 2, Unknown: 1, Dropped: SessionTokens}, "a live lease was given back", 5},
		{"a session is made by its first call", CallsOptions{Lanes: "co", Waiting: 1, Claims: 2, Others: 1, Unknown: 2, Trims: 1, Dropped: OpenedSessions}, "never be known", 4},
		{"a forgotten session begins anew", CallsOptions{Lanes: "co", Waiting: 1, Claims: 2, Others: 1, Unknown: 2, Trims: 1, Dropped: NoSession}, "nobody holds a lease", 6},
		{"a forgotten session begins anew, settles only", CallsOptions{Lanes: "co", Waiting: 1, Claims: 1, Others: 1, Unknown: 2, Trims: 1, Dropped: NoSession}, "nobody holds a lease", 6},
		{"no seal", CallsOptions{Lanes: "o", Waiting: 1, Others: 1, Unknown: 2, Leavers: 1, Creates: true, Dropped: Seals}, "told something else", 6},
		{"settle by ID only", CallsOptions{Lanes: "co", Waiting: 1, Claims: 1, Others: 1, Expiries: 1, Dropped: SettleTokens}, "not its caller's", 8},
		{"no numbers, and we repeat", CallsOptions{Lanes: "co", Waiting: 1, Claims: 1, Others: 1, Unknown: 2, Dropped: Numbers}, "told something else", 8},
		{"no numbers, and the client repeats", CallsOptions{Lanes: "co", Waiting: 1, Claims: 1, Others: 1, Repeats: 2, Dropped: Numbers}, "told something else", 8},
		{"no numbers, the client repeats, settle by ID only", CallsOptions{Lanes: "co", Waiting: 1, Claims: 1, Others: 1, Repeats: 2, Buries: true, Dropped: Numbers | SettleTokens}, "told something else", 8},
		{"a claim repeated under its number", CallsOptions{Lanes: "co", Waiting: 1, Claims: 1, Unknown: 2, Expiries: 1, Dropped: NewClaimNumbers}, "was over already", 5},
		{"nothing unseen is given back", CallsOptions{Lanes: "co", Waiting: 1, Claims: 1, Unknown: 2, Dropped: GiveBack}, "nobody holds a lease", 5},
		{"an answered claim without a caller is not sealed", CallsOptions{Lanes: "co", Waiting: 1, Claims: 1, Leavers: 1, Dropped: SealsOfClaims}, "nobody holds a lease", 4},
		{"a refusal after a lost answer is believed", CallsOptions{Lanes: "o", Others: 1, Unknown: 2, Refusals: 1, Creates: true, Dropped: SealsOfRefusals}, "told something else", 5},
		{"a refusal after a lost answer of a claim is believed", CallsOptions{Lanes: "c", Waiting: 1, Claims: 1, Unknown: 2, Refusals: 1, Dropped: SealsOfRefusals}, "nobody holds a lease", 5},
		{"a cancelled job's mark is not heeded", CallsOptions{Lanes: "co", Waiting: 1, Claims: 1, Expiries: 1, Cancels: 1, Dropped: CancelMarks}, "though it was cancelled", 4},

		// What NoRetry is for: nothing is dropped here but that.
		{"the client repeats, and the session is forgotten in between", CallsOptions{Lanes: "co", Waiting: 1, Claims: 1, Others: 1, Repeats: 1, Trims: 1}, "ran twice", 10},
		{"the client repeats, and the repeat is refused", CallsOptions{Lanes: "o", Others: 1, Repeats: 1, Refusals: 1, Creates: true}, "told something else", 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := c.o
			o.Batch = 1
			searchBroken(t, NewCalls(o), c.broken, c.steps)
		})
	}
}
