package cases

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/netfault"
	"github.com/leaseq/leaseq/reliable"
)

// lossyNet drops one reply in a hundred, of any command, and more of each script until its share of drops is reached.
type lossyNet struct {
	*detour
	share int

	mu      sync.Mutex
	random  *rand.Rand
	dropped map[string]int // by script
	asked   map[string]int
	other   int // drops of other commands
}

func newLossyNet(t *testing.T, share int) *lossyNet {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	l := &lossyNet{
		detour: newDetour(t), share: share, random: rand.New(rand.NewPCG(seed, 0)),
		dropped: map[string]int{}, asked: map[string]int{},
	}
	l.Decide(l.decide)
	return l
}

func (l *lossyNet) decide(cmd []string) netfault.Action {
	call, isOurs := scriptIn(cmd)
	l.mu.Lock()
	defer l.mu.Unlock()
	if isOurs {
		l.asked[call.Name]++
	}
	action, wanted := leaverAction(call)
	if !wanted {
		chance := 0.01
		if isOurs && l.dropped[call.Name] < l.share {
			chance = 0.2
		}
		if l.random.Float64() < chance {
			action = netfault.DropReply
		}
	}
	if action == netfault.DropReply && isOurs {
		l.dropped[call.Name]++
	} else if action == netfault.DropReply {
		l.other++
	}
	return action
}

// enough says whether each of these scripts has had its share of drops.
func (l *lossyNet) enough(names ...string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range names {
		if l.dropped[name] < l.share {
			return false
		}
	}
	return true
}

// ordinary is the traffic of a queue in use, all of it behind the lossy network: two producers, two consumers, somebody
// who redrives, and claimers who leave. Every 20th job fails once, and every 50th is buried and redriven once.
type ordinary struct {
	*lane
	t      *testing.T
	net    *lossyNet
	n      int
	starts *tally
	lost   atomic.Int64
	wrong  atomic.Pointer[string]
	acks   *countdown
}

func jobNumber(id string) int {
	var i int
	_, _ = fmt.Sscanf(id, "j%d", &i)
	return i
}

func failsOnce(i int) bool { return i%20 == 0 }
func diesOnce(i int) bool  { return i%50 == 1 }

// handle fails a job according to its number; what it sees of the job's counters must be exact.
func (o *ordinary) handle(_ context.Context, job *reliable.Job) error {
	o.starts.start(job.ID)
	i := jobNumber(job.ID)
	if job.Attempt != job.Failures+1 || job.Expiries != 0 || job.Failures > 1 || job.Redrives > 1 {
		text := fmt.Sprintf("%s: attempt %d, failures %d, expiries %d, redrives %d", job.ID, job.Attempt, job.Failures, job.Expiries, job.Redrives)
		o.wrong.Store(&text)
	}
	switch {
	case failsOnce(i) && job.Failures == 0:
		return errors.New("once")
	case diesOnce(i) && job.Redrives == 0:
		return reliable.Discard(errors.New("once"))
	}
	return nil
}

func (o *ordinary) options() *reliable.QueueOptions {
	return &reliable.QueueOptions{Lease: time.Minute, Backoff: reliable.Backoff{Base: time.Millisecond, Cap: time.Millisecond}}
}

func (o *ordinary) consume() {
	for _, repeater := range repeaters {
		rdb := o.net.client(o.t, nil)
		repeater.Hook(rdb)
		consumeWith(o.t, newQueueOn(o.t, rdb, o.name, o.options()), reliable.HandlerFunc(o.handle), &reliable.ConsumerOptions{
			Concurrency: 8, WakeFallback: 50 * time.Millisecond,
			Hooks: &reliable.Hooks{
				OnLost: func(context.Context, reliable.Event) { o.lost.Add(1) },
				OnDone: func(context.Context, reliable.Event) { o.acks.done() },
			},
		})
	}
}

// produce enqueues every second job of all, five in a call.
func (o *ordinary) produce(q *reliable.Queue, half int) error {
	for i := half; i < o.n; i += 10 {
		var items []reliable.Item
		for j := i; j < min(i+10, o.n); j += 2 {
			items = append(items, reliable.Item{Kind: "case", ID: fmt.Sprint("j", j), Payload: []byte("of a job")})
		}
		results, err := q.EnqueueMany(context.Background(), items)
		if err != nil {
			return err
		}
		for _, one := range results {
			if one.Err != nil {
				return fmt.Errorf("%s was never enqueued before: %w", one.ID, one.Err)
			}
		}
	}
	return nil
}

// redrive puts dead jobs back until all is done.
func (o *ordinary) redrive(q *reliable.Queue) error {
	for !o.over() {
		page, err := q.List(context.Background(), reliable.Dead, 5, nil)
		if err != nil {
			return err
		}
		dead := page.Jobs
		for _, one := range dead {
			results, err := q.Redrive(context.Background(), one.ID)
			if err := errors.Join(append(results, err)...); err != nil {
				return fmt.Errorf("%s is dead: %w", one.ID, err)
			}
		}
		if len(dead) == 0 {
			o.pause()
		}
	}
	return nil
}

func (o *ordinary) over() bool {
	select {
	case <-o.acks.all:
		return true
	default:
		return false
	}
}

func (o *ordinary) pause() {
	select {
	case <-o.acks.all:
	case <-time.After(5 * time.Millisecond):
	}
}

// check holds the end against what the numbers say.
func (o *ordinary) check() {
	t := o.t
	assert.Zero(t, o.lost.Load(), "verdicts that were refused though nothing was lost")
	if wrong := o.wrong.Load(); wrong != nil {
		assert.Fail(t, "counters that a handler saw", *wrong)
	}
	nacks, buries := 0, 0
	counts := o.starts.counts(t)
	require.Len(t, counts, o.n)
	for i := range o.n {
		want := 1
		if failsOnce(i) {
			nacks, want = nacks+1, want+1
		}
		if diesOnce(i) {
			buries, want = buries+1, want+1
		}
		require.Equal(t, want, counts[fmt.Sprint("j", i)], "starts of j%d", i)
	}
	stats := o.stats()
	for name, want := range map[string]int{
		"enqueued": o.n, "acked": o.n, "nacked": nacks, "buried": buries, "died": buries, "redriven": buries,
		"expired": 0, "refused": 0, "missing": 0, "cancelled": 0,
	} {
		assert.EqualValues(t, want, stats.Counters[name], name)
	}
	assert.Zero(t, stats.Processing, "leases that nobody holds")
	assert.Zero(t, stats.Due+stats.Dead+stats.Records, "jobs that are left")
	t.Logf("%d jobs, %d nacks, %d leases given back unseen or unstarted", o.n, nacks, stats.Counters["released"])
}

// Behind a network that drops replies after their commands have run, every kind of script included, with go-redis' own
// repeats on, and for half of all clients with repeats of whatever command lost its answer: no lease is held by nobody
// (nothing expires, and nothing is left), no verdict is refused that was given under a lease, no job is made twice, and
// every counter is exact. The full numbers are 10,000 jobs and a hundred drops of each script.
func TestRepliesDropped_NoLeaseIsHeldByNobodyAndEveryCountIsExact(t *testing.T) {
	t.Parallel()
	net := newLossyNet(t, shape(5, 100))
	o := &ordinary{t: t, net: net}
	o.n = shape(1000, 10_000)
	o.acks = newCountdown(o.n)
	o.lane = newLane(t, o.options())
	o.starts = newTally(t, o.name)
	var work []func() error
	for i, repeater := range repeaters {
		client := func() *redis.Client {
			rdb := net.client(t, nil)
			repeater.Hook(rdb)
			return rdb
		}
		q := newQueueOn(t, client(), o.name, o.options())
		leaver := newStore(t, net.client(t, nil), o.name)
		work = append(work,
			func() error { return o.produce(q, i) },
			func() error { return o.leaveClaims(leaver) },
		)
		for _, each := range operators {
			site := newOperatorSite(t, net, client())
			work = append(work, func() error { return each(site) })
		}
	}
	redriver := newQueueOn(t, net.client(t, nil), o.name, o.options())
	work = append(work, func() error { return o.redrive(redriver) })
	o.consume()

	ended := make(chan error, len(work))
	for _, one := range work {
		go func() { ended <- one() }()
	}
	limit := time.After(shape(time.Minute, 5*time.Minute))
	for range work {
		select {
		case err := <-ended:
			require.NoError(t, err)
		case <-limit:
			require.Fail(t, "no end", "%d of %d jobs are done; drops: %v; queue: %+v", o.acks.count.Load(), o.n, net.summary(), o.stats())
		}
	}
	net.Decide(nil)
	o.check()
	for _, one := range allScripts() {
		assert.True(t, net.enough(one.Name), "%s was dropped %d times, want %d: it needs an operator", one.Name, net.summary()[one.Name], net.share)
	}
	assert.GreaterOrEqual(t, net.Dropped(), net.Commands()/100)
	t.Logf("%d of %d replies dropped: %v", net.Dropped(), net.Commands(), net.summary())
}

// summary tells the drops by script.
func (l *lossyNet) summary() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[string]int{"(other commands)": l.other}
	for name, n := range l.dropped {
		out[name] = n
	}
	return out
}
