package cases

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/reliable"
)

// A tripLog is a go-redis hook that notes every round trip of a client: a command, or a pipeline, and of which scripts.
type tripLog struct {
	mu    sync.Mutex
	trips [][]string // the names of the scripts in each; of another command its own
}

func (l *tripLog) note(cmds ...redis.Cmder) {
	var names []string
	for _, cmd := range cmds {
		text := make([]string, 0, len(cmd.Args()))
		for _, arg := range cmd.Args() {
			text = append(text, fmt.Sprint(arg))
		}
		if call, ok := scriptIn(text); ok {
			names = append(names, strings.Split(call.Name, "+")...)
		} else {
			names = append(names, cmd.Name())
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trips = append(l.trips, names)
}

// with returns the round trips that carried a settle or a claim.
func (l *tripLog) with() (trips [][]string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, names := range l.trips {
		for _, name := range names {
			if name == "settle" || name == "claim" {
				trips = append(trips, names)
				break
			}
		}
	}
	return trips
}

func (l *tripLog) all() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.trips)
}

func (l *tripLog) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (l *tripLog) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		l.note(cmd)
		return next(ctx, cmd)
	}
}

func (l *tripLog) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		l.note(cmds...)
		return next(ctx, cmds)
	}
}

// workOff has a Consumer of this concurrency work off n jobs that are due, behind a proxy, until all are acked. It
// returns the round trips of its client, and the commands that its process has sent on all connections meanwhile.
func workOff(t *testing.T, concurrency, n int) (trips *tripLog, commands int64) {
	t.Helper()
	d := newDetour(t)
	trips = &tripLog{}
	d.rdb.AddHook(trips)
	name := redistest.Queue(t)
	producers := laneOn(t, name, redistest.Client(t), nil)
	producers.enqueue(numberedItems("j", n)...)
	l := laneOn(t, name, d.rdb, nil)
	var mu sync.Mutex
	acked, all := 0, make(chan struct{})
	stop := l.consume(func(context.Context, *reliable.Job) error { return nil }, &reliable.ConsumerOptions{
		Concurrency: concurrency, NoSweep: true, WakeFallback: time.Minute,
		Hooks: &reliable.Hooks{OnDone: func(context.Context, reliable.Event) {
			mu.Lock()
			defer mu.Unlock()
			if acked++; acked == n {
				commands = d.Commands()
				close(all)
			}
		}},
	})
	select {
	case <-all:
	case <-time.After(time.Minute):
		t.Fatal("the jobs are not worked off")
	}
	stop()
	return trips, commands
}

// At a concurrency of 1 nothing can be gathered, but a verdict and the claim of the next job go together: n jobs take a
// claim, and then a round trip each. Only the first verdict of a process goes alone, since its session has to be opened
// first, and the last one, since the claim before it said that nothing more is due.
func TestAtAConcurrencyOfOneARoundTripSettlesAndClaims(t *testing.T) {
	t.Parallel()
	n := shape(100, 1000)
	trips, _ := workOff(t, 1, n)
	got := trips.with()
	require.Equal(t, []string{"claim"}, got[0])
	together := 0
	for _, names := range got {
		if slices.Contains(names, "settle") && slices.Contains(names, "claim") {
			require.Len(t, names, 2)
			together++
		}
	}
	require.GreaterOrEqual(t, together, n-2, "round trips that settle and claim")
	// A wake-up that the enqueues have left may ask for one claim more.
	require.LessOrEqual(t, len(got), n+3, "round trips that settle or claim")
	t.Logf("%d jobs: %d round trips settle or claim, %d of them both; %d in all; the first: %q", n, len(got), together, trips.all(), got[:4])
}

// At a concurrency of 50 whatever has finished during one round trip goes into the next: at least five jobs on the
// average. That holds for all round trips of the client, and no more commands are sent than two in each.
func TestAtAConcurrencyOfFiftyAJobCostsAFifthOfARoundTripAtMost(t *testing.T) {
	t.Parallel()
	n := shape(3000, 20_000)
	trips, commands := workOff(t, 50, n)
	require.LessOrEqual(t, float64(trips.all())/float64(n), 0.2, "round trips a job")
	require.LessOrEqual(t, float64(commands)/float64(n), 0.4, "commands a job, on all connections")
	t.Logf("%d jobs: %.3f round trips a job, %.3f commands", n, float64(trips.all())/float64(n), float64(commands)/float64(n))
}
