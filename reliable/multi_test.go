package reliable_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/reliable"
)

// runMulti runs a consumer of several queues until the test ends, or stop is called, which returns Run's error.
func runMulti(t *testing.T, shares []reliable.Share, o *reliable.MultiOptions) (m *reliable.MultiConsumer, stop func() error) {
	t.Helper()
	m, err := reliable.NewMultiConsumer(shares, o)
	require.NoError(t, err)
	return m, runUntilStopped(t, m.Run)
}

// multi are options with so many slots.
func multi(slots int) *reliable.MultiOptions {
	return &reliable.MultiOptions{Consumer: reliable.ConsumerOptions{Concurrency: slots}}
}

// starts counts the jobs of several queues as they begin, from when all queues take part and a few more have begun, until
// there were so many.
type starts struct {
	mu                sync.Mutex
	slots             int
	left, running     int // to skip before it counts
	joined            int
	began             []bool
	n                 []int
	most              int
	done              chan struct{}
	ended, overbooked bool
}

func countStarts(queues, slots, most int) *starts {
	return &starts{slots: slots, left: 2 * slots, began: make([]bool, queues), n: make([]int, queues), most: most, done: make(chan struct{})}
}

// begin counts one; false: there were enough.
func (s *starts) begin(i int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running++
	s.overbooked = s.overbooked || s.running > s.slots
	if !s.began[i] {
		s.began[i] = true
		s.joined++
	}
	switch {
	case s.ended:
	case s.joined < len(s.n):
	case s.left > 0:
		s.left--
	default:
		s.n[i]++
		s.most--
	}
	if s.most == 0 && !s.ended {
		s.ended = true
		close(s.done)
	}
	return !s.ended
}

func (s *starts) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
}

// handler is that of one queue. Jobs that begin after the last that counts wait for the end of the consumer.
func (s *starts) handler(i int, work func()) reliable.Handler {
	return reliable.HandlerFunc(func(ctx context.Context, _ *reliable.Job) error {
		goOn := s.begin(i)
		defer s.end()
		if !goOn {
			<-ctx.Done()
			return ctx.Err()
		}
		work()
		return nil
	})
}

func TestJobsOfSeveralQueuesBeginInProportionToTheirWeights(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		slots, n int
		work     time.Duration
	}{
		"one slot":                  {slots: 1, n: 2000},
		"short jobs":                {slots: 12, n: 2000},
		"jobs that take their time": {slots: 12, n: 2000, work: 3 * time.Millisecond},
		"many slots":                {slots: 300, n: 4000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			weights := []int{6, 3, 1}
			n := c.n
			s := countStarts(len(weights), c.slots, n)
			var shares []reliable.Share
			for i, weight := range weights {
				q := newQueue(t, &reliable.QueueOptions{Lease: 5 * time.Second})
				err := q.PauseFor(t.Context(), time.Hour)
				require.NoError(t, err)
				for range 8 {
					put(t, q, jobs("k", 500)...)
				}
				shares = append(shares, reliable.Share{Queue: q, Weight: weight, Handler: s.handler(i, func() {
					if c.work > 0 {
						<-time.After(c.work)
					}
				})})
			}
			o := multi(c.slots)
			o.Consumer.DrainTimeout = time.Millisecond
			m, stop := runMulti(t, shares, o)
			require.Eventually(t, func() bool { return m.Health(t.Context()) == nil }, 20*time.Second, time.Millisecond, "all have claimed")
			for _, share := range shares {
				_, err := share.Queue.Resume(t.Context())
				require.NoError(t, err)
			}
			receive(t, s.done)
			s.mu.Lock()
			// Slots are shared exactly when claims land, which the test of the allotter holds; here starts are counted. Where
			// the count begins and where it ends every slot may belong to a job whose goroutine has had no time yet.
			for i, weight := range weights {
				require.InDelta(t, n*weight/10, s.n[i], float64(n/50+c.slots), "queue %d of %v", i, s.n)
			}
			require.False(t, s.overbooked, "more handlers than slots")
			s.mu.Unlock()
			require.NoError(t, stop())
		})
	}
}
