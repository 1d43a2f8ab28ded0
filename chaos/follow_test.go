package chaos

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/chaos/record"
)

// followWhile writes events while a follower looks on, once after each.
func followWhile(t *testing.T, events ...record.Event) Progress {
	t.Helper()
	file := filepath.Join(t.TempDir(), "one.jsonl")
	rec, err := record.Open(file, &record.Options{Queue: "q", Process: "one"})
	require.NoError(t, err)
	f := newFollower()
	f.add("one", file)
	for i := range events {
		rec.Write(&events[i])
		require.NoError(t, f.look())
	}
	require.NoError(t, rec.Close())
	require.NoError(t, f.look())
	return f.count
}

// What is wrong at first sight is told while a run lasts.
func TestAStartAfterItsAckIsSeenAtOnceUnlessRedisForgot(t *testing.T) {
	t.Parallel()
	start := func(fence int64) record.Event {
		return record.Event{Kind: record.Started, ID: "a", Fence: fence, Enqueued: 7, Attempt: 1}
	}
	acked := record.Event{Kind: record.Settled, ID: "a", Fence: 10, Out: record.OutAcked}
	loses := record.Event{Kind: record.Faulted, Call: 1, Out: record.FaultBegin, Effects: []string{record.Loses}}
	over := record.Event{Kind: record.Faulted, Call: 1, Out: record.FaultEnd}
	again := start(20)
	again.Enqueued = 8
	require.EqualValues(t, 1, followWhile(t, start(10), acked, start(20)).Violations, "it was acked")
	require.EqualValues(t, 1, followWhile(t, start(10), start(10)).Violations, "a fence is given once")
	require.Zero(t, followWhile(t, start(10), acked, again).Violations, "another job of that ID")
	require.Zero(t, followWhile(t, start(10), acked, loses, over, start(20)).Violations, "the ack was forgotten")
	require.Zero(t, followWhile(t, start(10), loses, acked, over, start(20)).Violations, "the same, read later")
	later := []record.Event{loses, over}
	for range 20 {
		later = append(later, record.Event{Kind: record.Swept})
	}
	require.EqualValues(t, 1, followWhile(t, append(later, start(10), acked, start(20))...).Violations, "it was acked long after that")
}
