package reliable_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/reliable"
)

// watched runs a consumer whose health is asked for.
func watched(t *testing.T, q *reliable.Queue, h reliable.Handler, o *reliable.ConsumerOptions) (c *reliable.Consumer, stop func() error) {
	t.Helper()
	c, err := reliable.NewConsumer(q, h, o)
	require.NoError(t, err)
	require.ErrorIs(t, c.Health(t.Context()), reliable.ErrNotRunning)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	var result error
	go func() {
		defer close(ended)
		result = c.Run(ctx)
	}()
	stop = func() error {
		cancel()
		<-ended
		return result
	}
	t.Cleanup(func() { _ = stop() })
	require.Eventually(t, func() bool { return c.Health(t.Context()) == nil }, 20*time.Second, time.Millisecond)
	return c, stop
}

// awaitHealth waits until Health is as wanted.
func awaitHealth(t *testing.T, c *reliable.Consumer, within time.Duration, wanted func(err error) bool) error {
	t.Helper()
	var err error
	require.Eventually(t, func() bool {
		err = c.Health(context.Background())
		return wanted(err)
	}, within, 10*time.Millisecond, "health: %v", &err)
	return err
}

func ill(err error) bool  { return err != nil }
func well(err error) bool { return err == nil }

func nothing(context.Context, *reliable.Job) error { return nil }

func TestHealthSaysWhetherTheConsumerRuns(t *testing.T) {
	t.Parallel()
	q := newQueue(t, quick())
	c, stop := watched(t, q, reliable.HandlerFunc(nothing), nil)
	require.NoError(t, c.Health(t.Context()))
	require.NoError(t, stop())
	require.ErrorIs(t, c.Health(t.Context()), reliable.ErrNotRunning)
}

func TestAServerThatAnswersPingsAndRefusesClaimsIsNotHealthy(t *testing.T) {
	t.Parallel()
	name, rdb := redistest.BrokenQueue(t), redistest.Client(t)
	q := queueOn(t, rdb, name, quick())
	c, _ := watched(t, q, reliable.HandlerFunc(nothing), &reliable.ConsumerOptions{WakeFallback: 50 * time.Millisecond})
	part, err := keys.New(keys.DefaultPrefix, name, 0)
	require.NoError(t, err)

	for key, says := range map[string]string{"due": "claims", "processing": "sweeps"} {
		require.NoError(t, rdb.Set(t.Context(), part.Key(key), "text", 0).Err())
		require.NoError(t, rdb.Ping(t.Context()).Err())
		err = awaitHealth(t, c, 10*time.Second, ill)
		assert.ErrorContains(t, err, says+": failing for")
		assert.ErrorContains(t, err, "WRONGTYPE")
		assert.ErrorContains(t, err, name)
		require.NoError(t, rdb.Del(t.Context(), part.Key(key)).Err())
		awaitHealth(t, c, 5*time.Second, well)
	}
}

func TestASilentNetworkIsNotHealthyAndHealthComesBackByItself(t *testing.T) {
	t.Parallel()
	name := redistest.Queue(t)
	rdb, p := behindProxy(t, 3*time.Second)
	q := queueOn(t, rdb, name, nil)
	c, _ := watched(t, q, reliable.HandlerFunc(nothing), nil)
	p.BlackHole(true)
	awaitHealth(t, c, 10*time.Second, ill)
	p.BlackHole(false)
	awaitHealth(t, c, 10*time.Second, well)
}

func TestHealthNamesHandlersThatDoNotHeedTheirJobTimeout(t *testing.T) {
	t.Parallel()
	q := newQueue(t, quick())
	release := make(chan struct{})
	deaf := func(ctx context.Context, job *reliable.Job) error {
		<-release
		return nil
	}
	c, _ := watched(t, q, reliable.HandlerFunc(deaf), &reliable.ConsumerOptions{Concurrency: 3, JobTimeout: 50 * time.Millisecond, NoSweep: true})
	put(t, q, reliable.Item{Kind: "deaf", ID: "one"}, reliable.Item{Kind: "deaf", ID: "two"})
	err := awaitHealth(t, c, 20*time.Second, func(err error) bool {
		var overdue *reliable.OverdueError
		return errors.As(err, &overdue) && len(overdue.Handlers) == 2
	})
	var overdue *reliable.OverdueError
	require.ErrorAs(t, err, &overdue)
	assert.Equal(t, 1, overdue.Free)
	for _, h := range overdue.Handlers {
		assert.Equal(t, "deaf", h.Kind)
		assert.Contains(t, []string{"one", "two"}, h.ID)
		assert.Equal(t, 1, h.Attempt)
		assert.Greater(t, h.RunTime, 50*time.Millisecond)
	}
	assert.ErrorContains(t, err, "2 of 3 slots are held by handlers whose job timeout is over")
	close(release)
	awaitHealth(t, c, 20*time.Second, well)
}

func TestAConsumerWithoutAFreeSlotIsHealthyThoughItClaimsNothing(t *testing.T) {
	t.Parallel()
	o := quick()
	o.Lease = 6 * time.Second // with a short one a machine that stands still fails a heartbeat, which is told
	q := newQueue(t, o)
	release, started := make(chan struct{}), make(chan struct{})
	busy := func(ctx context.Context, job *reliable.Job) error {
		close(started)
		<-release
		return nil
	}
	c, _ := watched(t, q, reliable.HandlerFunc(busy), &reliable.ConsumerOptions{Concurrency: 1, WakeFallback: 10 * time.Millisecond})
	put(t, q, job("long"))
	receive(t, started)
	began := time.Now()
	require.Eventually(t, func() bool {
		require.NoError(t, c.Health(t.Context()))
		return time.Since(began) > 4*time.Second
	}, 20*time.Second, 50*time.Millisecond)
	close(release)
}

func TestAHookThatBlocksTheConsumerIsNotHealthy(t *testing.T) {
	t.Parallel()
	q := newQueue(t, quick())
	release := make(chan struct{})
	hooks := &reliable.Hooks{OnDone: func(context.Context, reliable.Event) { <-release }}
	c, _ := watched(t, q, reliable.HandlerFunc(nothing), &reliable.ConsumerOptions{WakeFallback: 10 * time.Millisecond, Hooks: hooks})
	put(t, q, job("k"))
	err := awaitHealth(t, c, 20*time.Second, ill)
	assert.ErrorContains(t, err, "claims: nothing has worked for")
	close(release)
	awaitHealth(t, c, 20*time.Second, well)
}

func TestAConsumerThatStopsIsNotReadyForMore(t *testing.T) {
	t.Parallel()
	q := newQueue(t, quick())
	release, started := make(chan struct{}), make(chan struct{})
	busy := func(ctx context.Context, job *reliable.Job) error {
		close(started)
		<-release
		return nil
	}
	c, stop := watched(t, q, reliable.HandlerFunc(busy), nil)
	put(t, q, job("long"))
	receive(t, started)
	ended := make(chan error, 1)
	go func() { ended <- stop() }()
	err := awaitHealth(t, c, 20*time.Second, ill)
	assert.ErrorIs(t, err, reliable.ErrNotRunning)
	assert.ErrorContains(t, err, "stopping")
	close(release)
	require.NoError(t, receive(t, ended))
}

func TestAConsumerIsHealthyWhileItAsksForTheNextOfItsLongJobs(t *testing.T) {
	t.Parallel()
	name := redistest.Queue(t)
	rdb, p := behindProxy(t, 3*time.Second)
	q := queueOn(t, rdb, name, nil)
	running, finish := make(chan struct{}, 1), make(chan struct{})
	long := func(context.Context, *reliable.Job) error {
		running <- struct{}{}
		<-finish
		return nil
	}
	c, _ := watched(t, q, reliable.HandlerFunc(long), &reliable.ConsumerOptions{Concurrency: 1, WakeFallback: 10 * time.Millisecond})
	put(t, q, job("long"))
	receive(t, running)
	assert.Never(t, func() bool { return c.Health(t.Context()) != nil }, 3500*time.Millisecond, 100*time.Millisecond)
	p.Delay(100 * time.Millisecond) // so that the claim after it takes its time
	close(finish)
	var last error
	assert.Never(t, func() bool { last = c.Health(t.Context()); return last != nil }, time.Second, 5*time.Millisecond, "%v", &last)
	p.Delay(0)
}

func TestHealthSaysAtOnceWhatIsKnownAndEndsWithRun(t *testing.T) {
	t.Parallel()
	name := redistest.Queue(t)
	rdb, p := behindProxy(t, 3*time.Second)
	q := queueOn(t, rdb, name, nil)
	p.BlackHole(true)
	t.Cleanup(func() { p.BlackHole(false) })
	c, err := reliable.NewConsumer(q, reliable.HandlerFunc(nothing), nil)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	require.Eventually(t, func() bool { return !errors.Is(c.Health(cancelled()), reliable.ErrNotRunning) }, 20*time.Second, time.Millisecond)
	health := make(chan error, 2)
	ask := func() { health <- c.Health(context.Background()) }
	go ask()
	p.Cut() // the first tries fail now, and no sweep has been tried: nothing but the claims is known
	assert.ErrorContains(t, receive(t, health), "claims: failing for")
	go ask()
	cancel()
	require.NoError(t, receive(t, ended))
	assert.Error(t, receive(t, health))
}

func cancelled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}
