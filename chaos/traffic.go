package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leaseq/leaseq/chaos/record"
	"github.com/leaseq/leaseq/reliable"
)

// A profile is how jobs come: at which share of the rate at a time of the run, and with which delays and sizes.
type profile struct {
	share func(elapsed time.Duration) float64
	delay func(rng *rand.Rand, lease time.Duration) time.Duration
	size  func(rng *rand.Rand) int // bytes of padding of a default job
}

var profiles = map[string]profile{
	"steady":  {share: steady, delay: atOnce, size: small},
	"bursts":  {share: bursts, delay: atOnce, size: small},
	"delayed": {share: steady, delay: delayed, size: small},
	"large":   {share: func(time.Duration) float64 { return 0.2 }, delay: atOnce, size: large},
	"mixed": {share: func(elapsed time.Duration) float64 {
		if int(elapsed/(10*time.Second))%2 == 0 {
			return 1
		}
		return bursts(elapsed)
	}, delay: func(rng *rand.Rand, lease time.Duration) time.Duration {
		if rng.IntN(4) > 0 {
			return 0
		}
		return delayed(rng, lease)
	}, size: func(rng *rand.Rand) int {
		if rng.IntN(200) > 0 {
			return small(rng)
		}
		return large(rng)
	}},
}

// Profiles are the names for Options.Profile: steady; bursts (five times the rate for one second in five); delayed (due
// up to two leases later); large (10 to 200 KB each, a fifth of the rate); mixed (all of it).
func Profiles() []string { return []string{"mixed", "steady", "bursts", "delayed", "large"} }

func steady(time.Duration) float64 { return 1 }

func bursts(elapsed time.Duration) float64 {
	if int(elapsed/time.Second)%5 == 0 {
		return 5
	}
	return 0
}

func atOnce(*rand.Rand, time.Duration) time.Duration { return 0 }

func delayed(rng *rand.Rand, lease time.Duration) time.Duration {
	return time.Duration(rng.Int64N(int64(2*lease))) / time.Millisecond * time.Millisecond
}

func small(rng *rand.Rand) int { return rng.IntN(200) }

func large(rng *rand.Rand) int { return 10_000 + rng.IntN(190_000) }

const (
	producers   = 4
	sendTimeout = 3 * time.Second  // of one enqueue: then its outcome is unknown, and asked for
	askTimeout  = 15 * time.Second // how long it is asked for
)

// traffic is all that is done to the queue from outside of its workers.
type traffic struct {
	storm *storm
	queue *reliable.Queue
	next  atomic.Int64
	limit int64 // how many jobs may be outstanding
	asks  sync.WaitGroup
}

// run produces until ctx ends, and then waits for what is not known yet.
func (t *traffic) run(ctx context.Context) {
	var all sync.WaitGroup
	for n := range producers {
		all.Go(func() { t.produce(ctx, n) })
	}
	all.Go(func() { t.operate(ctx) })
	all.Wait()
	t.asks.Wait()
}

// produce enqueues at its part of the rate.
func (t *traffic) produce(ctx context.Context, n int) {
	rng := rand.New(rand.NewPCG(t.storm.Seed, 1000+uint64(n)))
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	owed, last := 0.0, time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := time.Now()
		share := profiles[t.storm.Profile].share(now.Sub(t.storm.began))
		if t.storm.calming() {
			share /= 2 // so that what has heaped up is worked off beside what comes
		}
		owed = min(owed+share*float64(t.storm.Rate)/producers*now.Sub(last).Seconds(), float64(t.storm.Rate))
		last = now
		for owed >= 1 && ctx.Err() == nil && t.room() {
			n := t.send(ctx, rng, int(owed))
			owed -= float64(n)
		}
	}
}

func (t *traffic) room() bool {
	f := t.storm.follow
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.count.Enqueued-f.count.Acked-f.count.Dead < t.limit
}

// send enqueues one job, or now and then some in one call, or one with an ID that is taken. It returns how many.
func (t *traffic) send(ctx context.Context, rng *rand.Rand, most int) int {
	call, cancel := context.WithTimeout(context.WithoutCancel(ctx), sendTimeout)
	defer cancel()
	if most >= 4 && rng.IntN(10) == 0 {
		items := make([]reliable.Item, min(most, 16))
		for i := range items {
			items[i] = t.item(rng)
		}
		results, calls, _ := t.storm.rec.EnqueueMany(call, t.queue, items)
		for i, r := range results {
			t.ask(ctx, calls[i], r.Err)
		}
		return len(items)
	}
	item := t.item(rng)
	if rng.IntN(50) == 0 {
		if ids := t.storm.follow.some(false, recent); len(ids) > 0 {
			item.ID = ids[rng.IntN(len(ids))]
		}
	}
	_, c, err := t.storm.rec.Enqueue(call, t.queue, item)
	t.ask(ctx, c, err)
	return 1
}

// ask finds out, in the background, what became of a call that was not answered.
func (t *traffic) ask(ctx context.Context, c *record.Call, err error) {
	var unknown *reliable.UnknownError
	if !errors.As(err, &unknown) {
		return
	}
	t.asks.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout)
		defer cancel()
		_ = c.Resolve(ctx, unknown) // the answer is in the history
	})
}

func (t *traffic) item(rng *rand.Rand) reliable.Item {
	i := int(t.next.Add(1)) - 1
	if t.storm.Job == nil {
		return builtInItem(i, rng, t.storm.settings)
	}
	value, o := t.storm.Job(i)
	if o == nil {
		o = &reliable.EnqueueOptions{}
	}
	payload, err := t.storm.Codec.Marshal(value)
	if err != nil {
		t.storm.problem("Job(%d) cannot be encoded: %v", i, err)
	}
	return reliable.Item{
		Kind: value.Kind(), Payload: payload, ID: o.ID, Delay: o.Delay, At: o.At, Headers: o.Headers,
		MaxRetries: o.MaxRetries, MaxExpiries: o.MaxExpiries,
	}
}

// operate does what operators do: it cancels, redrives and purges, job by job.
func (t *traffic) operate(ctx context.Context) {
	rng := rand.New(rand.NewPCG(t.storm.Seed, 2000))
	tick := time.NewTicker(150 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), sendTimeout)
		t.operation(call, rng)
		cancel()
	}
}

// operation does one of them. What it is told is in the history; an error that says nothing leaves it unknown.
func (t *traffic) operation(ctx context.Context, rng *rand.Rand) {
	rec, f := t.storm.rec, t.storm.follow
	switch rng.IntN(4) {
	case 0:
		ids := f.some(false, 20)
		if len(ids) > 0 {
			_, _ = rec.Cancel(ctx, t.queue, ids[rng.IntN(len(ids))])
		}
	case 1, 2:
		ids := f.some(true, 16)
		if len(ids) >= 4 {
			f.forgetDead(ids)
			_, _ = rec.Redrive(ctx, t.queue, ids[1:]...)
			_, _ = rec.Purge(ctx, t.queue, reliable.Dead, ids[0])
		}
	}
}

// kinds are those of the default Job, with how many of a thousand there are.
var kinds = []struct {
	name string
	many int
}{
	{"work", 883}, {"slow", 10}, {"fail", 50}, {"retry-after", 10}, {"snooze", 20}, {"discard", 12}, {"panic", 8},
	{"goexit", 2}, {"hang", 3}, {"deaf", 2},
}

func builtInItem(i int, rng *rand.Rand, s *settings) reliable.Item {
	p := profiles[s.Profile]
	at := rng.IntN(1000)
	for _, k := range kinds {
		if at -= k.many; at < 0 {
			return reliable.Item{
				ID: fmt.Sprintf("job-%07d", i), Kind: k.name, Delay: p.delay(rng, s.Lease),
				Payload: slices.Repeat([]byte{byte(rng.IntN(256))}, p.size(rng)),
			}
		}
	}
	panic("the kinds do not add up to 1000")
}
