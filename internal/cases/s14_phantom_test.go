package cases

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/lease"
	"github.com/leaseq/leaseq/reliable"
)

// sealed makes a payload that says whose it is and whether it is whole.
func sealed(id string) []byte {
	payload := make([]byte, 4, 64)
	for range rand.IntN(40) {
		payload = append(payload, byte(rand.Uint32()))
	}
	payload = append(payload, id...)
	binary.BigEndian.PutUint32(payload, crc32.ChecksumIEEE(payload[4:]))
	return payload
}

// broken says what is wrong with a payload that sealed made for the ID.
func broken(id string, payload []byte) string {
	switch {
	case len(payload) < 4:
		return fmt.Sprintf("%q has a payload of %d bytes", id, len(payload))
	case binary.BigEndian.Uint32(payload) != crc32.ChecksumIEEE(payload[4:]):
		return fmt.Sprintf("the payload of %q is not what was enqueued", id)
	case !strings.HasSuffix(string(payload), id):
		return fmt.Sprintf("%q has the payload of another job", id)
	}
	return ""
}

// phantoms looks at every start and counts every ack.
type phantoms struct {
	starts, late atomic.Int64
	mu           sync.Mutex
	known        map[string]bool
	wrong        []string
	acks         map[string]int
}

func (p *phantoms) Handle(_ context.Context, job *reliable.Job) error {
	p.starts.Add(1)
	why := broken(job.ID, job.Payload)
	p.mu.Lock()
	if !p.known[job.ID] {
		why = fmt.Sprintf("%q was never enqueued", job.ID)
	}
	if why == "" && job.Kind != "case" {
		why = fmt.Sprintf("%q has the kind %q", job.ID, job.Kind)
	}
	if why != "" {
		p.wrong = append(p.wrong, why)
	}
	p.mu.Unlock()
	if rand.IntN(50) == 0 {
		p.late.Add(1)
		<-time.After(60 * time.Millisecond) // longer than the lease; a nil from it may come too late
		return nil
	}
	<-time.After(time.Millisecond + rand.N(4*time.Millisecond))
	return nil
}

func (p *phantoms) done(_ context.Context, e reliable.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.acks[e.ID]++
}

// Sweepers run every 5 ms against consumers that settle at the very end of a short lease, and later. Nothing that was
// finished comes back, as a job or as a part of one.
func TestS14_SweepersNeverBringBackAFinishedJob(t *testing.T) {
	t.Parallel()
	redistest.NeedServer(t)
	l := newLane(t, &reliable.QueueOptions{Lease: 50 * time.Millisecond, MaxExpiries: limitOf(100_000), MaxRetries: limitOf(100_000)})
	n := shape(4000, 20_000)
	p := &phantoms{known: map[string]bool{}, acks: map[string]int{}}
	items := numberedItems("J", n)
	for i := range items {
		items[i].Payload = sealed(items[i].ID)
		p.known[items[i].ID] = true
	}
	l.enqueue(items...)
	for range 3 {
		l.sweepEvery(5 * time.Millisecond)
	}
	var stops []func()
	for i := range 4 {
		// Two without a heartbeat, so that every late handler is too late.
		stops = append(stops, consumeWith(t, l.queue, p, &reliable.ConsumerOptions{
			Concurrency: 8, NoExtend: i%2 == 0, Hooks: &reliable.Hooks{OnDone: p.done},
		}))
	}
	require.Eventually(t, func() bool { return l.stats().Counters["acked"] >= int64(n) }, 5*time.Minute, 20*time.Millisecond)
	for _, stop := range stops {
		stop() // waits for handlers that are late
	}

	assert.Empty(t, p.wrong, "of %d starts", p.starts.Load())
	assert.Len(t, p.acks, n, "distinct jobs acked")
	for id, times := range p.acks {
		assert.Equal(t, 1, times, "acks of %s", id)
	}
	counters := l.stats().Counters
	assert.EqualValues(t, n, counters["acked"])
	assert.EqualValues(t, n, counters["enqueued"])
	assert.Equal(t, int64(n)+counters["expired"]+counters["released"]+counters["nacked"], counters["claimed"])
	assert.Positive(t, counters["expired"], "the sweepers found nothing to do")
	assert.Positive(t, counters["refused"], "no settle came too late")
	assert.Subset(t, []string{"fence", "sessions", "holders", "sweep", "wake", "policy", "stats"}, l.keysThere(), "keys left")
	t.Logf("%d starts, %d of them longer than a lease; %d leases expired, %d late settles refused",
		p.starts.Load(), p.late.Load(), counters["expired"], counters["refused"])
}

// keysThere lists the queue's keys, by their short names.
func (l *lane) keysThere() []string {
	l.t.Helper()
	var names []string
	for _, key := range slices.Sorted(maps.Keys(redistest.Dump(l.t, l.rdb, "", l.name))) {
		names = append(names, key[strings.LastIndex(key, "}:")+2:])
	}
	return names
}

// sweepEvery calls Sweep in a loop, without graces, until the test ends. It returns what counts the leases it has ended.
func (l *lane) sweepEvery(pause time.Duration) *atomic.Int64 {
	l.t.Helper()
	var reaped atomic.Int64
	store, err := lease.NewStore(redistest.Client(l.t), l.name, nil)
	require.NoError(l.t, err)
	sweeper, err := lease.NewSweeper(store, &lease.SweeperOptions{OnSweep: func(e lease.Expired) { reaped.Add(int64(e.Moved())) }})
	require.NoError(l.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ticks := time.NewTicker(pause)
		defer ticks.Stop()
		for {
			if _, err := sweeper.Sweep(context.Background(), 0, true); err != nil {
				ended <- err
				return
			}
			select {
			case <-ctx.Done():
				ended <- nil
				return
			case <-ticks.C:
			}
		}
	}()
	l.t.Cleanup(func() {
		cancel()
		require.NoError(l.t, <-ended)
		require.NoError(l.t, store.Close(context.Background()))
	})
	return &reaped
}
