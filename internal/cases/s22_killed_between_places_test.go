//go:build unix

package cases

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/reliable"
)

var errAlways = errors.New("fails always")

var (
	// Every job fails and is due again 10 ms later.
	_ = crashHandler("s22-nacks", func(w *crashWorker) reliable.Handler {
		return reliable.HandlerFunc(func(context.Context, *reliable.Job) error {
			<-time.After(rand.N(20 * time.Millisecond))
			return reliable.RetryAfter(10*time.Millisecond, errAlways)
		})
	})
	// Every job goes to dead, and its process puts whatever is dead back to due, all the time.
	_ = crashHandler("s22-dies", func(w *crashWorker) reliable.Handler {
		q, err := reliable.New(w.Server.client(0), w.Queue, w.queueOptions())
		if err != nil {
			panic(err)
		}
		go func() {
			for range time.Tick(2 * time.Millisecond) {
				if _, err := q.RedriveNext(context.Background(), &reliable.Cursor{}, 50); err != nil {
					fmt.Fprintln(os.Stderr, "redrive:", err)
				}
			}
		}()
		return reliable.HandlerFunc(func(_ context.Context, job *reliable.Job) error {
			<-time.After(rand.N(20 * time.Millisecond))
			if job.Fence()%2 == 0 {
				return reliable.Discard(errAlways)
			}
			return errAlways // no retries are left: dead as well
		})
	})
)

// storm kills a worker 50–150 ms after it has begun, again and again, and counts the kills that left leases behind: at
// least one in three, since it goes on where the machine is too busy for the workers to get at anything.
func (s *crashSite) storm(t *testing.T, kills int) (total, holding int) {
	t.Helper()
	for total < kills || holding < kills/3 {
		require.Less(t, total, 10*kills, "the workers get at nothing: %d kills left leases behind", holding)
		p := s.worker(t, nil)
		<-time.After(50*time.Millisecond + rand.N(100*time.Millisecond))
		p.Kill()
		total++
		n, err := s.rdb.ZCard(t.Context(), s.keys.Key("processing")).Result()
		require.NoError(t, err)
		if n > 0 {
			holding++
		}
	}
	return total, holding
}

// sample reads the books until ctx ends and at least n times.
func (s *crashSite) sample(ctx context.Context, n, jobs int) (taken int, err error) {
	for ctx.Err() == nil || taken < n {
		b, err := s.takeBalance(context.WithoutCancel(ctx))
		if err == nil {
			err = b.check(jobs)
		}
		if err != nil {
			return taken, err
		}
		taken++
		select {
		case <-ctx.Done():
		case <-time.After(shape(10*time.Millisecond, 25*time.Millisecond)): // the server has more to do
		}
	}
	return taken, nil
}

// Whatever moves a job from one place to the next, killing a worker at any moment leaves every job in exactly one
// place, in the middle of the storm as after it, and every counter exact.
func TestS22_KillsAtAnyMomentLeaveEveryJobInExactlyOnePlace(t *testing.T) {
	t.Parallel()
	redistest.NeedServer(t)
	for _, c := range []struct {
		name, handler string
		retries       int
	}{
		{"nacked", "s22-nacks", 999},
		{"dead and redriven", "s22-dies", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			const jobs = 200
			s := newCrashSite(t, crashConfig{
				Handler: c.handler, Concurrency: 16, Lease: 300 * time.Millisecond, MaxRetries: c.retries, MaxExpiries: 999,
			})
			items := make([]reliable.Item, jobs)
			for i := range items {
				items[i] = reliable.Item{ID: fmt.Sprintf("J%03d", i), Kind: "s22", Payload: []byte("same")}
			}
			s.enqueue(items...)

			ctx, calm := context.WithCancel(t.Context())
			var sampling sync.WaitGroup
			var taken int
			var wrong error
			sampling.Go(func() { taken, wrong = s.sample(ctx, shape(100, 1000), jobs) })
			total, holding := s.storm(t, shape(15, 300))
			calm()
			sampling.Wait()
			require.NoError(t, wrong, "sample %d in the storm", taken)
			assert.GreaterOrEqual(t, taken, shape(100, 1000), "samples")

			s.settle(t)
			b, err := s.takeBalance(t.Context())
			require.NoError(t, err)
			require.NoError(t, b.check(jobs))
			assert.Empty(t, b.processing)
			s.checkCounts(t, items)
			t.Logf("%d samples; %d of %d kills left leases behind; %d nacked, %d buried, %d expired, %d redriven", taken, holding, total,
				s.count(t, "nacked"), s.count(t, "buried"), s.count(t, "expired"), s.count(t, "redriven"))
		})
	}
}

// settle waits until the leases of killed workers are over, and sweeps.
func (s *crashSite) settle(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		swept, err := s.sweeper.Sweep(t.Context(), 0, true)
		return assert.NoError(t, err) && swept.NextExpiry < 0
	}, time.Minute, 20*time.Millisecond, "leases that do not end")
}

// checkCounts requires the jobs' own counters to be what happened, where nothing has reset them.
func (s *crashSite) checkCounts(t *testing.T, items []reliable.Item) {
	t.Helper()
	ids := make([]string, len(items))
	for i := range items {
		ids[i] = items[i].ID
	}
	infos, err := s.queue.Inspect(t.Context(), ids...)
	require.NoError(t, err)
	var failures, expiries, redrives int64
	for _, info := range infos {
		failures += int64(info.Failures)
		expiries += int64(info.Expiries)
		redrives += int64(info.Redrives)
		assert.Equal(t, []byte("same"), info.Payload)
	}
	assert.Equal(t, s.count(t, "redriven"), redrives)
	if redrives > 0 {
		assert.EqualValues(t, s.count(t, "nacked")+s.count(t, "buried"), s.count(t, "died"))
		return
	}
	assert.Equal(t, s.count(t, "nacked"), failures)
	assert.Equal(t, s.count(t, "expired"), expiries)
	assert.Positive(t, failures)
}

// readers are the commands that may touch a queue's keys from outside of a script: they change nothing, run one, or wait.
var readers = []string{"EVALSHA", "EVAL", "BLPOP", "ZRANGE", "ZCARD", "ZSCORE", "HGET", "HGETALL", "HKEYS", "HLEN", "LLEN", "GET", "TYPE", "PTTL"}

// MONITOR sees jobs enqueued, claimed, failed, dead, redriven and, after a kill, expired: what moves them are scripts,
// and nothing else writes to a key of the queue.
func TestS22_NothingButScriptsMovesJobs(t *testing.T) {
	t.Parallel()
	redistest.NeedServer(t) // for MONITOR
	s := newCrashSite(t, crashConfig{
		Handler: "s22-dies", Concurrency: 8, Lease: 300 * time.Millisecond, MaxRetries: 0, MaxExpiries: 999,
	})
	var victim *process
	adds := map[string]int{} // a place to how often a script put jobs there
	begin := func() {
		victim = s.worker(t, nil)
		items := make([]reliable.Item, 50)
		for i := range items {
			items[i] = reliable.Item{ID: fmt.Sprintf("J%03d", i), Kind: "s22"}
		}
		s.enqueue(items...)
	}
	monitor(t, s.Queue, begin, func(c seen) bool {
		if !c.script {
			assert.Contains(t, readers, c.command, "outside of a script: %s", c.line)
			return true
		}
		for _, place := range []string{"due", "processing", "dead"} {
			if c.command == "ZADD" && strings.Contains(c.line, strconv.Quote(s.keys.Key(place))) {
				adds[place]++
			}
		}
		if victim != nil && adds["due"] > 100 {
			victim.Kill()
			victim = nil
			s.worker(t, nil)
		}
		return adds["due"] < 200 || adds["dead"] < 50 || s.count(t, "expired") == 0
	})
	assert.Positive(t, adds["processing"])
	assert.Positive(t, s.count(t, "redriven"))
	t.Logf("scripts put jobs into places: %v", adds)
}
