package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/chaos/record"
	"github.com/leaseq/leaseq/reliable"
)

// commandWorker is the argument that makes this test binary a program of a user's, which knows package record only.
const commandWorker = "command-worker"

// ping is a job of that program.
type ping struct{ N int }

func (ping) Kind() string { return "ping" }

// commandMain is the main function of that program.
func commandMain() error {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	rec, err := record.FromEnv()
	if err != nil {
		return err
	}
	options, err := redis.ParseURL(os.Getenv(record.EnvURL))
	if err != nil {
		return err
	}
	slots, err := strconv.Atoi(os.Getenv(record.EnvSlots))
	if err != nil {
		return err
	}
	lease, err := time.ParseDuration(os.Getenv(record.EnvLease))
	if err != nil {
		return err
	}
	q, err := reliable.New(redis.NewClient(options), os.Getenv(record.EnvQueue), &reliable.QueueOptions{Prefix: os.Getenv(record.EnvPrefix), Lease: lease})
	if err != nil {
		return err
	}
	mux := reliable.NewMux()
	err = reliable.Handle(mux, func(ctx context.Context, _ *reliable.Job, p ping) error {
		rest(ctx, time.Duration(p.N%100)*time.Millisecond) // so that a kill hits somebody
		return nil
	}, nil)
	if err != nil {
		return err
	}
	c, err := reliable.NewConsumer(q, mux, &reliable.ConsumerOptions{
		Concurrency: slots, DrainTimeout: lease, Middleware: []reliable.Middleware{rec.Middleware()}, Hooks: rec.Hooks(nil),
	})
	if err != nil {
		return err
	}
	return errors.Join(c.Run(ctx), rec.Close())
}

func playCommand() int {
	if err := commandMain(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// TestAProgramOfAnyKindCanBeTheWorker has a command that knows nothing of package chaos.
func TestAProgramOfAnyKindCanBeTheWorker(t *testing.T) {
	t.Parallel()
	faults, err := FaultsNamed("worker-kill", "reply-drop")
	require.NoError(t, err)
	r := Test(t, &Options{
		Command: []string{os.Args[0], commandWorker}, Duration: 10 * time.Second, Lease: time.Second, Faults: faults, Rate: 100,
		Job: func(i int) (reliable.Kinder, *reliable.EnqueueOptions) {
			return ping{i}, &reliable.EnqueueOptions{ID: fmt.Sprintf("ping:%d", i)}
		},
	})
	require.Greater(t, r.Acked, int64(200))
	require.NotZero(t, r.Kills)
}

// slowStart starts that program at once in its first process, and 5 s late in each later one: on a busy machine the
// process that takes a killed one's place needs as long.
const slowStart = `case $LEASEQ_CHAOS_PROCESS in *.1) ;; *) sleep 5 ;; esac; exec "$0" "$@"`

// TestAFaultIsOverWhenWhoTakesAKilledWorkersPlaceWorks has nobody who could take what ran out for longer than the calm
// lasts, which counts from the first who can.
func TestAFaultIsOverWhenWhoTakesAKilledWorkersPlaceWorks(t *testing.T) {
	t.Parallel()
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("no sh here")
	}
	faults, err := FaultsNamed("worker-kill")
	require.NoError(t, err)
	r := Test(t, &Options{
		Command: []string{sh, "-c", slowStart, os.Args[0], commandWorker}, Workers: 1, Lease: 600 * time.Millisecond, Faults: faults, Rate: 40,
		Schedule: &Schedule{Seed: 1, DurationMS: 6800, Faults: []Planned{{Name: "worker-kill", Lane: Kills, AtMS: 1500, Pick: 1}}},
		Job: func(i int) (reliable.Kinder, *reliable.EnqueueOptions) {
			return ping{60 + i%30}, nil // so that always two or three are worked on
		},
	})
	require.EqualValues(t, 1, r.Kills)
	require.Positive(t, r.Recovered)
}
