package cases

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/reliable"
)

// Eight consumers of a queue with a rate of 100 a second start 300 jobs in three seconds (3,000 in thirty), and in no
// second more than 110, by Redis' clock, which a job's fence has.
func TestTheRateOfAQueueIsKeptByManyConsumersTogether(t *testing.T) {
	t.Parallel()
	const rate, burst, consumers = 100, 10, 8
	length := shape(3*time.Second, 30*time.Second)
	l := newLane(t, &reliable.QueueOptions{Rate: rate, Lease: 10 * time.Second})
	wanted := rate * int(length/time.Second)
	l.enqueue(numberedItems("j", wanted+2*rate)...)
	var mu sync.Mutex
	var starts []int64
	handler := reliable.HandlerFunc(func(_ context.Context, job *reliable.Job) error {
		mu.Lock()
		defer mu.Unlock()
		starts = append(starts, job.Fence())
		return nil
	})
	for range consumers {
		rdb := redis.NewClient(redistest.Options(t))
		t.Cleanup(func() { require.NoError(t, rdb.Close()) })
		q, err := reliable.New(rdb, l.name, &reliable.QueueOptions{Rate: rate, Lease: 10 * time.Second})
		require.NoError(t, err)
		t.Cleanup(func() { closeBounded(t, q.Close) })
		consumeWith(t, q, handler, &reliable.ConsumerOptions{Concurrency: 20})
	}
	seen := func() []int64 {
		mu.Lock()
		defer mu.Unlock()
		out := slices.Clone(starts)
		slices.Sort(out)
		return out
	}
	require.Eventually(t, func() bool { return len(seen()) > 0 }, 20*time.Second, time.Millisecond)
	begin := seen()[0]
	l.awaitServerTimeWithin(time.UnixMicro(begin).Add(length+300*time.Millisecond), length+20*time.Second)

	all := seen()
	n := slices.IndexFunc(all, func(at int64) bool { return at >= begin+length.Microseconds() })
	require.Positive(t, n, "%d jobs were started", len(all))
	lost := 0 // starts that nobody came for in time, since this machine was busy with something else
	for i := 1; i < n; i++ {
		lost += int(max(time.Duration(all[i]-all[i-1])*time.Microsecond-100*time.Millisecond, 0) / (time.Second / rate))
	}
	busiest := 0
	for i := range all {
		end, _ := slices.BinarySearch(all, all[i]+time.Second.Microseconds())
		busiest = max(busiest, end-i)
	}
	t.Logf("%d starts in %v, %d at the most in a second, %d lost to this machine, %d calls", n, length, busiest, lost, l.calls())
	assert.LessOrEqual(t, n, wanted+burst)
	assert.GreaterOrEqual(t, n, wanted-wanted/100-lost)
	assert.LessOrEqual(t, busiest, rate+burst)
}

func (l *lane) awaitServerTimeWithin(at time.Time, within time.Duration) {
	l.t.Helper()
	require.Eventually(l.t, func() bool { return !l.serverTime().Before(at) }, within, 10*time.Millisecond)
}

// calls is how many numbered calls the queue's sessions have made.
func (l *lane) calls() (n int) {
	l.t.Helper()
	for _, record := range l.rdb.HVals(l.t.Context(), l.keys.Key("sessions")).Val() {
		number, _, _ := strings.Cut(record, " ")
		one, err := strconv.Atoi(number)
		require.NoError(l.t, err)
		n += one
	}
	return n
}
