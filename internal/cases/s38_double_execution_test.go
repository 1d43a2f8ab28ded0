package cases

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/netfault"
	"github.com/leaseq/leaseq/lease"
	"github.com/leaseq/leaseq/reliable"
)

// A doubled is one operation of S38: the jobs are on a lane that nothing disturbs, and store and queue are behind a
// proxy that drops the reply of every call of the operation once.
type doubled struct {
	*lane
	t     *testing.T
	n     int
	d     *detour
	store *lease.Store // behind the proxy
}

// forEachRepeater runs one operation with our runner's repeats and with those of a client that repeats by itself.
func forEachRepeater(t *testing.T, o *reliable.QueueOptions, run func(c *doubled)) {
	t.Parallel()
	for _, repeater := range repeaters {
		t.Run(repeater.Name, func(t *testing.T) {
			t.Parallel()
			c := &doubled{lane: newLane(t, o), t: t, n: shape(20, 200), d: newDetour(t)}
			repeater.Hook(c.d.rdb)
			c.store = newStore(t, c.d.rdb, c.name)
			c.claim(1) // publishes the policy
			run(c)
		})
	}
}

// leased makes n jobs and leases them behind the proxy, before any reply is dropped.
func (c *doubled) leased() []lease.Lease {
	c.t.Helper()
	c.enqueue(numberedItems("j", c.n)...)
	got, err := c.store.Claim(c.t.Context(), c.n, nil)
	require.NoError(c.t, err)
	require.Len(c.t, got.Jobs, c.n)
	return got.Jobs
}

// settleEach settles one job a call, and requires the first answer of each, then the refusal of each new call.
func (c *doubled) settleEach(jobs []lease.Lease, v lease.Verdict, want lease.Settled, refused error) {
	c.t.Helper()
	once := func(job *lease.Lease) lease.Settled {
		v.ID, v.Token = job.ID, job.Token
		got, err := c.store.Settle(c.t.Context(), []lease.Verdict{v})
		require.NoError(c.t, err)
		return got[0]
	}
	dropped := c.d.dropEachOnce("settle")
	for i := range jobs {
		require.Equal(c.t, want, once(&jobs[i]), "the library's own repeat gets the first answer")
	}
	for i := range jobs {
		if lost, ok := refused.(*lease.LostError); ok {
			lost.ID = jobs[i].ID
		}
		require.Equal(c.t, refused, once(&jobs[i]).Err, "a new call with the old token")
	}
	require.Equal(c.t, 2*len(jobs), dropped())
	c.d.Decide(nil)
}

// once requires that every job was counted once, with one reason each.
func (c *doubled) once(failures, expiries int, place reliable.Place, reasons int) {
	c.t.Helper()
	members := c.members(place)
	require.Len(c.t, members, c.n)
	for _, id := range members {
		info := c.inspect(id)
		require.Equal(c.t, [2]int{failures, expiries}, [2]int{info.Failures, info.Expiries}, id)
		require.Len(c.t, info.Errors, reasons, id)
	}
}

func (c *doubled) counters(want map[string]int) {
	c.t.Helper()
	got := c.stats().Counters
	for name, n := range want {
		require.EqualValues(c.t, n, got[name], name)
	}
}

func TestS38_AcksWhoseRepliesAreLostAckOnce(t *testing.T) {
	forEachRepeater(t, nil, func(c *doubled) {
		c.settleEach(c.leased(), lease.Verdict{Op: lease.Ack}, lease.Settled{}, lease.ErrGone)
		c.counters(map[string]int{"acked": c.n, "claimed": c.n, "refused": c.n})
		c.balanced(c.n)
	})
}

func TestS38_NacksWhoseRepliesAreLostCountOneFailure(t *testing.T) {
	forEachRepeater(t, nil, func(c *doubled) {
		nack := lease.Verdict{Op: lease.Nack, Delay: time.Hour, Reason: "once"}
		c.settleEach(c.leased(), nack, lease.Settled{Place: lease.Due}, &lease.LostError{Place: lease.Due})
		c.once(1, 0, reliable.Due, 1)
		c.counters(map[string]int{"nacked": c.n, "died": 0})
	})
}

func TestS38_MovesToDeadWhoseRepliesAreLostMakeOneDeadLetter(t *testing.T) {
	t.Parallel()
	for counter, verdict := range map[string]lease.Verdict{
		"nacked": {Op: lease.Nack, Delay: time.Hour, Reason: "once"}, "buried": {Op: lease.Bury, Reason: "once"},
	} {
		t.Run(counter, func(t *testing.T) {
			forEachRepeater(t, &reliable.QueueOptions{MaxRetries: limitOf(0)}, func(c *doubled) {
				c.settleEach(c.leased(), verdict, lease.Settled{Place: lease.Dead}, &lease.LostError{Place: lease.Dead})
				c.once(1, 0, reliable.Dead, 1)
				c.counters(map[string]int{"died": c.n, counter: c.n, "claimed": c.n, "refused": c.n})
			})
		})
	}
}

func TestS38_ExtendsWhoseRepliesAreLostHoldTheLease(t *testing.T) {
	forEachRepeater(t, nil, func(c *doubled) {
		jobs := c.leased()
		dropped := c.d.dropEachOnce("extend")
		extend := func(job *lease.Lease) lease.Extended {
			got, err := c.store.Extend(c.t.Context(), time.Hour, []lease.Held{{ID: job.ID, Token: job.Token}})
			require.NoError(c.t, err)
			return got
		}
		for i := range jobs {
			got := extend(&jobs[i])
			require.NoError(c.t, got.Results[0])
			require.True(c.t, got.Deadline.After(jobs[i].Deadline))
		}
		require.Equal(c.t, c.n, dropped())
		for _, id := range c.members(lease.Processing) {
			require.Greater(c.t, c.inspect(id).In, 59*time.Minute)
		}
		c.counters(map[string]int{"refused_extends": 0})
		settle(c.t, c.store, jobs...)
		for i := range jobs {
			require.Equal(c.t, lease.ErrGone, extend(&jobs[i]).Results[0], "a new call after the end")
		}
		c.balanced(c.n)
	})
}

// Half of the sweeps' replies are lost, and the sweeper calls again: each lease is ended by one call.
func TestS38_SweepsWhoseRepliesAreLostCountOneExpiry(t *testing.T) {
	t.Parallel()
	for name, place := range map[string]reliable.Place{"to due": reliable.Due, "to dead": reliable.Dead} {
		t.Run(name, func(t *testing.T) {
			expiries, reasons := 5, 0
			if place == reliable.Dead {
				expiries, reasons = 0, 1
			}
			o := &reliable.QueueOptions{Lease: 20 * time.Millisecond, MaxExpiries: &expiries}
			forEachRepeater(t, o, func(c *doubled) {
				c.leased()
				dropped := c.d.dropEachOnce("expire")
				require.Eventually(c.t, func() bool {
					_, err := c.store.Expire(c.t.Context(), max(c.n/20, 1), true)
					return err == nil && c.stats().Processing == 0
				}, 20*time.Second, time.Millisecond)
				require.GreaterOrEqual(c.t, dropped(), 10)
				c.once(0, 1, place, reasons)
				c.counters(map[string]int{"expired": c.n, "died": c.n * reasons, "claimed": c.n})
			})
		})
	}
}

func TestS38_RedrivesWhoseRepliesAreLostRedriveOnce(t *testing.T) {
	forEachRepeater(t, nil, func(c *doubled) {
		c.bury()
		dropped := c.d.dropEachOnce("redrive")
		for _, id := range c.members(lease.Dead)[:c.n/2] {
			got, err := c.store.Redrive(c.t.Context(), []string{id})
			require.NoError(c.t, err)
			require.NoError(c.t, got[0], "the first answer")
		}
		var cursor lease.Cursor
		moved := 0
		for !cursor.Done {
			n, err := c.store.RedriveNext(c.t.Context(), &cursor, 3)
			require.NoError(c.t, err)
			moved += n
		}
		require.Equal(c.t, c.n-c.n/2, moved, "in bulk, as the answers say")
		require.GreaterOrEqual(c.t, dropped(), c.n/2+moved/3)
		for _, id := range c.members(lease.Due) {
			info := c.inspect(id)
			require.Equal(c.t, [2]int{0, 1}, [2]int{info.Failures, info.Redrives})
			require.Len(c.t, info.Errors, 1)
			got, err := c.store.Redrive(c.t.Context(), []string{id})
			require.NoError(c.t, err)
			require.Equal(c.t, &lease.LostError{ID: id, Place: lease.Due}, got[0], "a new call")
		}
		c.counters(map[string]int{"redriven": c.n})
		c.balanced(c.n)
	})
}

// bury puts n jobs into dead.
func (c *doubled) bury() {
	c.t.Helper()
	for _, job := range c.leased() {
		v := lease.Verdict{Op: lease.Bury, ID: job.ID, Token: job.Token, Reason: "buried"}
		_, err := c.store.Settle(c.t.Context(), []lease.Verdict{v})
		require.NoError(c.t, err)
	}
}

// Cancel and purge are siblings: what they removed must not be told as gone.
func TestS38_RemovalsWhoseRepliesAreLostAreAnsweredAsDone(t *testing.T) {
	forEachRepeater(t, nil, func(c *doubled) {
		c.enqueue(numberedItems("j", c.n)...)
		dropped := c.d.dropEachOnce("cancel", "purge")
		for i, id := range c.members(lease.Due) {
			if i%2 == 0 {
				got, err := c.store.Cancel(c.t.Context(), []string{id})
				require.NoError(c.t, err)
				require.Equal(c.t, lease.Removed{Cancelled: true}, got[0])
				continue
			}
			got, err := c.store.Purge(c.t.Context(), lease.Due, []string{id})
			require.NoError(c.t, err)
			require.NoError(c.t, got[0])
		}
		require.Equal(c.t, c.n, dropped())
		c.counters(map[string]int{"cancelled": c.n / 2, "purged": c.n - c.n/2})
		require.Zero(c.t, c.stats().Records)
	})
}

func TestS38_EnqueuesWhoseRepliesAreLostMakeOneJob(t *testing.T) {
	forEachRepeater(t, nil, func(c *doubled) {
		q := newQueueOn(c.t, c.d.rdb, c.name, nil)
		dropped := c.d.dropEachOnce("enqueue")
		for _, item := range numberedItems("j", c.n) {
			_, err := q.Enqueue(c.t.Context(), item)
			require.NoError(c.t, err, "the first answer is created")
			_, err = q.Enqueue(c.t.Context(), item)
			require.Equal(c.t, &reliable.DuplicateError{ID: item.ID, Place: reliable.Due}, err, "a true duplicate")
		}
		require.Equal(c.t, 2*c.n, dropped())
		c.counters(map[string]int{"enqueued": c.n})
		c.balanced(c.n)
	})
}

// Between the enqueue and its repeat somebody claims and acks the job: the repeat makes no second one, and is answered
// as the first was.
func TestS38_AnEnqueueRepeatedAfterItsJobWasAckedMakesNoSecondJob(t *testing.T) {
	forEachRepeater(t, nil, func(c *doubled) {
		q := newQueueOn(c.t, c.d.rdb, c.name, nil)
		dropper := &onceDropper{names: []string{"enqueue"}, seen: map[string]bool{}}
		var ackErr error
		acked := 0
		c.d.Decide(func(cmd []string) netfault.Action {
			action := dropper.decide(cmd)
			if call, ok := scriptIn(cmd); ok && call.Name == "enqueue" && action == netfault.Pass {
				ackErr = errors.Join(ackErr, c.ackAll())
				acked++
			}
			return action
		})
		for _, item := range numberedItems("j", c.n) {
			_, err := q.Enqueue(c.t.Context(), item)
			require.NoError(c.t, err)
		}
		c.d.Decide(nil)
		require.NoError(c.t, ackErr)
		require.Equal(c.t, c.n, acked)
		c.counters(map[string]int{"enqueued": c.n, "acked": c.n, "claimed": c.n})
		c.balanced(c.n)
		require.Zero(c.t, c.stats().Records)
	})
}

// ackAll claims and acks what is due, on the undisturbed connection; it is called by the proxy.
func (c *doubled) ackAll() error {
	batch, err := c.queue.Claim(context.Background(), 10, nil)
	if err != nil {
		return err
	}
	if len(batch.Jobs) != 1 {
		return errors.New("want one job, there are " + strconv.Itoa(len(batch.Jobs)))
	}
	return batch.Jobs[0].Ack(context.Background())
}

// A Consumer's acks, in batches and in one round trip with its claims: each success of a handler is counted once.
func TestS38_AHandlersSuccessIsCountedOnceThoughTheAcksReplyIsLost(t *testing.T) {
	forEachRepeater(t, nil, func(c *doubled) {
		starts := newTally(c.t, c.name)
		c.enqueue(numberedItems("j", c.n)...)
		var lost, failed atomic.Int64
		acks := newCountdown(c.n)
		dropped := c.d.dropEachOnce("settle")
		stop := consumeWith(c.t, newQueueOn(c.t, c.d.rdb, c.name, nil), reliable.HandlerFunc(func(_ context.Context, job *reliable.Job) error {
			starts.start(job.ID)
			return nil
		}), &reliable.ConsumerOptions{Concurrency: 4, Hooks: &reliable.Hooks{
			OnDone:  func(context.Context, reliable.Event) { acks.done() },
			OnLost:  func(context.Context, reliable.Event) { lost.Add(1) },
			OnRetry: func(context.Context, reliable.Event) { failed.Add(1) },
		}})
		awaitFrom(c.t, acks.all, "all acks")
		stop()
		require.EqualValues(c.t, []int64{int64(c.n), 0, 0}, []int64{acks.count.Load(), lost.Load(), failed.Load()}, "done, lost, failed")
		require.Positive(c.t, dropped())
		counts := starts.counts(c.t)
		require.Len(c.t, counts, c.n)
		for id, times := range counts {
			assert.Equal(c.t, 1, times, id)
		}
		c.counters(map[string]int{"acked": c.n, "refused": 0, "expired": 0, "nacked": 0})
	})
}
