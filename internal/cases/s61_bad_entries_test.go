package cases

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/lease"
	"github.com/leaseq/leaseq/reliable"
)

// A badEntry is a member that somebody else's hand, another program or a half-restored backup has left in a place.
type badEntry struct {
	id, score string
	record    string // empty: none
	token     string // empty: none
	counts    string // empty: none
}

// badEntries makes n of them, of every sort, those with a record first.
func badEntries(n int) (all []badEntry, withRecord int) {
	scores := []string{"-inf", "-1", "-1700000000000", "0", "1", "0.5", "1000000000000", "1e-300", "-1e300"}
	for i := range n {
		one := badEntry{id: fmt.Sprintf("bad-%d", i), score: scores[i%len(scores)]}
		switch i % 5 {
		case 0: // a record of the wrong type: no envelope
			one.record = []string{"{\"id\":1}", "\x83\xa1a\x01", "\x00", "\xff\xff", "plain text"}[i/5%5]
			withRecord++
		case 1: // no record, and no lease
		case 2: // a lease without a record
			one.token = []string{"1767225600000000:gone:1", "no token at all", ":", "9:9"}[i/5%4]
		case 3: // a member in an old format
			one.id = []string{`{"id":"%d","payload":{"a":1}}`, "%d|order|1767225600", "msg:%d\x00\xff\n", strings.Repeat("x", 5000) + "%d"}[i/5%4]
			one.id = fmt.Sprintf(one.id, i)
		case 4: // counters that are none
			one.counts = []string{"nan", "", "1 2", "x y z - - -", "-1 -1 -1 - - -"}[i/5%5]
		}
		all = append(all, one)
	}
	return all, withRecord
}

// plant writes bad entries into a place by hand. A lease among them counts as claimed, as it would if it were one.
func (l *lane) plant(place lease.Place, all []badEntry) {
	l.t.Helper()
	ctx := l.t.Context()
	_, err := l.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for _, one := range all {
			pipe.Do(ctx, "zadd", l.keys.Key(string(place)), one.score, one.id)
			for key, value := range map[string]string{"jobs": one.record, "leases": one.token, "counts": one.counts} {
				if value != "" {
					pipe.HSet(ctx, l.keys.Key(key), one.id, value)
				}
			}
			if one.token != "" {
				pipe.HIncrBy(ctx, l.keys.Key("stats"), "claimed", 1)
			}
		}
		return nil
	})
	require.NoError(l.t, err)
}

// setAside asserts that bad entries went to dead, each once.
func (l *lane) setAside(all []badEntry) {
	l.t.Helper()
	dead := l.members(lease.Dead)
	require.Len(l.t, dead, len(all))
	in := map[string]bool{}
	for _, id := range dead {
		in[id] = true
	}
	for _, one := range all {
		require.True(l.t, in[one.id], "%.60q", one.id)
		info := l.inspect(one.id)
		require.NotEmpty(l.t, info.Errors, "%.60q", one.id)
		reason := info.Errors[len(info.Errors)-1].Reason
		if one.record == "" {
			require.Equal(l.t, "no record", reason, "%.60q", one.id)
			continue
		}
		require.True(l.t, strings.HasPrefix(reason, "undecodable"), reason)
		require.Equal(l.t, one.record, string(info.Payload), "the raw bytes of %.60q", one.id)
	}
}

func TestS61_BadEntriesDoNotStarveTheSweep(t *testing.T) {
	t.Parallel()
	const bad, good, batch = 500, 1000, 100
	l := newLane(t, &reliable.QueueOptions{Lease: 10 * time.Second})
	entries, withRecord := badEntries(bad)
	l.enqueue(numberedItems("good-", good)...)
	var ids []string
	for id := range l.claimExactly(good) {
		ids = append(ids, id)
	}
	l.setScores(lease.Processing, strconv.FormatInt(l.serverTime().UnixMilli(), 10), ids...)
	l.plant(lease.Processing, entries)

	var log lineLog
	sweeper, err := lease.NewSweeper(l.store, &lease.SweeperOptions{Batch: batch, Logger: log.logger()})
	require.NoError(t, err)
	missing := 0
	for sweep := 1; sweep <= 20; sweep++ {
		got, err := sweeper.Sweep(t.Context(), batch, true)
		require.NoError(t, err)
		missing += got.Missing
		if sweep > (bad+good)/batch {
			require.Zero(t, got.Moved(), "sweep %d found something again", sweep)
		}
		if sweep == 16 {
			for _, id := range ids {
				require.Equal(t, reliable.Due, l.inspect(id).Place, id)
			}
		}
	}
	require.Equal(t, bad-withRecord, missing)
	require.EqualValues(t, bad-withRecord, l.stats().Counters["missing"], "counted once each")
	require.Zero(t, l.stats().Processing)
	require.LessOrEqual(t, len(log.lines()), bad/batch+1, "at most a line a sweep that found some: %s", log.String())

	// What has a record cannot be told from a job before somebody decodes it: a claim sets it aside, and hands it to nobody.
	acked, wrong := new(atomic.Int64), new(atomic.Int64)
	stop := l.consume(func(_ context.Context, job *reliable.Job) error {
		if string(job.Payload) != job.ID || job.Attempt != 2 {
			wrong.Add(1)
		}
		acked.Add(1)
		return nil
	}, nil)
	require.Eventually(t, func() bool {
		s := l.stats()
		return s.Counters["acked"] == good && s.Dead == bad
	}, time.Minute, 20*time.Millisecond)
	stop()
	require.EqualValues(t, good, acked.Load())
	require.Zero(t, wrong.Load(), "a handler was given something else than was enqueued")
	require.EqualValues(t, withRecord, l.stats().Counters["buried"])
	l.setAside(entries)
	l.balanced(bad + good)
}

// A Sweeper that runs by itself, as the sidecar does, drains bad and good ones together, and then has peace.
func TestS61_ARunningSweeperSetsBadEntriesAsideOnceAndGoesOn(t *testing.T) {
	t.Parallel()
	const bad, good = 500, 200
	l := newLane(t, &reliable.QueueOptions{Lease: 300 * time.Millisecond})
	entries, withRecord := badEntries(bad)
	l.enqueue(numberedItems("good-", good)...)
	l.claimExactly(good)
	l.plant(lease.Processing, entries)
	var log lineLog
	moving := make(chan lease.Expired, 1000)
	l.sweepOn(&lease.SweeperOptions{Batch: 100, Logger: log.logger(), OnSweep: func(e lease.Expired) {
		if e.Moved() > 0 {
			moving <- e
		}
	}})
	require.Eventually(t, func() bool {
		s := l.stats()
		return s.Processing == 0 && s.Due == int64(good+withRecord)
	}, 30*time.Second, 10*time.Millisecond)
	calls := len(moving)
	l.enqueue(numberedItems("late-", 1)...)
	jobs := l.claim(lease.MaxBatch) // also a proof that the sweeper still lives: these leases run out too
	require.Len(t, jobs, good+1)
	require.Eventually(t, func() bool { return l.stats().Due == good+1 }, 30*time.Second, 10*time.Millisecond)
	require.LessOrEqual(t, calls, (bad+good)/100+3)
	require.EqualValues(t, bad-withRecord, l.stats().Counters["missing"])
	told := 0
	for _, line := range log.lines() {
		if strings.Contains(line, "without a record") {
			told++
		}
	}
	require.LessOrEqual(t, told, bad/100+1, log.String())
	l.setAside(entries)
}

// The same kind of fault in due: claims get past it.
func TestS61_BadEntriesDoNotStarveTheClaim(t *testing.T) {
	t.Parallel()
	const bad, good = 500, 1000
	for _, wait := range []time.Duration{0, time.Minute} {
		t.Run("by hand, waiting "+wait.String(), func(t *testing.T) {
			t.Parallel()
			l := newLane(t, nil)
			entries, _ := badEntries(bad)
			l.plant(lease.Due, withoutLeases(entries))
			l.enqueue(numberedItems("good-", good)...)
			held := 0
			for claims := 0; held < good; claims++ {
				require.Less(t, claims, (bad+good)/100+5, "claims do not get past the bad entries")
				batch, err := l.queue.Claim(t.Context(), 100, &reliable.ClaimOptions{Wait: wait})
				require.NoError(t, err)
				if wait > 0 {
					require.NotEmpty(t, batch.Jobs, "an empty batch while jobs are due")
				}
				for _, job := range batch.Jobs {
					require.Equal(t, job.ID, string(job.Payload))
				}
				held += len(batch.Jobs)
			}
			l.setAside(entries)
			l.balanced(bad + good)
		})
	}
	t.Run("by a consumer", func(t *testing.T) {
		t.Parallel()
		l := newLane(t, nil)
		entries, _ := badEntries(bad)
		l.plant(lease.Due, withoutLeases(entries))
		l.enqueue(numberedItems("good-", good)...)
		var wrong atomic.Int64
		stop := l.consume(func(_ context.Context, job *reliable.Job) error {
			if string(job.Payload) != job.ID {
				wrong.Add(1)
			}
			return nil
		}, &reliable.ConsumerOptions{Concurrency: 16})
		require.Eventually(t, func() bool { return l.stats().Counters["acked"] == good }, time.Minute, 20*time.Millisecond)
		stop()
		require.Zero(t, wrong.Load())
		l.setAside(entries)
		l.balanced(bad + good)
	})
}

// withoutLeases leaves the tokens away: a lease on a job that is due is another fault, which only a doctor finds.
func withoutLeases(all []badEntry) []badEntry {
	out := make([]badEntry, len(all))
	for i, one := range all {
		one.token = ""
		out[i] = one
	}
	return out
}

// An entry that never expires is the doctor's to find. Until then it is in nobody's way.
func TestS61_AnEntryThatNeverExpiresIsInNobodysWay(t *testing.T) {
	t.Parallel()
	l := newBrokenLane(t, &reliable.QueueOptions{Lease: 300 * time.Millisecond})
	l.plant(lease.Processing, []badEntry{{id: "never", score: "+inf"}})
	l.plant(lease.Due, []badEntry{{id: "never due", score: "+inf"}})
	l.sweepOn(nil)
	l.enqueue(numberedItems("j", 10)...)
	l.claimExactly(10)
	stop := l.consume(func(context.Context, *reliable.Job) error { return nil }, nil)
	require.Eventually(t, func() bool { return l.stats().Counters["acked"] == 10 }, 30*time.Second, 10*time.Millisecond)
	stop()
	require.Equal(t, []string{"never"}, l.members(lease.Processing))
	require.Equal(t, []string{"never due"}, l.members(lease.Due))
	require.EqualValues(t, 10, l.stats().Counters["expired"])
}
