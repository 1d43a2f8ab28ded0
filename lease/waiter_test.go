package lease

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/redistest"
)

// waits makes a waiter that is closed when the test ends.
func waits(t *testing.T, s *Store, fallback time.Duration) *Waiter {
	t.Helper()
	w, err := NewWaiter(s, fallback, nil)
	require.NoError(t, err)
	t.Cleanup(w.Close)
	return w
}

// blocked waits until a connection of this queue blocks, and returns its ID.
func (b *bench) blocked(t *testing.T, w *Waiter) int64 {
	t.Helper()
	var id int64
	require.Eventually(t, func() bool {
		for _, line := range strings.Split(b.rdb.ClientList(t.Context()).Val(), "\n") {
			if strings.Contains(line, "name="+b.clientName()+" ") && strings.Contains(line, "cmd=blpop") {
				text, _, _ := strings.Cut(strings.TrimPrefix(line, "id="), " ")
				id, _ = strconv.ParseInt(text, 10, 64)
			}
		}
		return id > 0
	}, patience, pollEvery)
	require.NotNil(t, w)
	return id
}

// clientName marks the connections of one test.
func (b *bench) clientName() string { return b.queue[strings.LastIndexByte(b.queue, '/')+1:] }

// named makes a bench whose store has a client of its own, with a name and few connections.
func named(t *testing.T) (*bench, *redis.Client) {
	t.Helper()
	redistest.NeedServer(t)
	queue := redistest.Queue(t)
	o := redistest.Options(t)
	o.ClientName, o.PoolSize = queue[strings.LastIndexByte(queue, '/')+1:], 2
	rdb := redis.NewClient(o)
	t.Cleanup(func() { _ = rdb.Close() })
	return newBench(t, queue, rdb, redistest.Client(t)), rdb
}

func (b *bench) listLen(t *testing.T) int64 {
	t.Helper()
	n, err := b.rdb.LLen(t.Context(), b.key("wake")).Result()
	require.NoError(t, err)
	return n
}

func TestAWakeUpIsTakenByOneWhoListens(t *testing.T) {
	t.Parallel()
	b, _ := named(t)
	w := waits(t, b.Store, time.Minute)
	defer w.Listen()()
	for range 3 {
		w.Arm()
		b.blocked(t, w)
		began := time.Now()
		b.put(t, "a")
		assert.True(t, <-w.C())
		assert.Less(t, time.Since(began), 5*time.Second, "at once, not at the fallback")
		assert.Zero(t, b.listLen(t))
		_, err := b.Cancel(t.Context(), []string{"a"})
		require.NoError(t, err)
	}
}

func TestAWakeUpThatIsThereAlreadyIsTakenAtOnce(t *testing.T) {
	t.Parallel()
	b, _ := named(t)
	require.NoError(t, b.Wake(t.Context()))
	require.NoError(t, b.Wake(t.Context()))
	assert.EqualValues(t, 1, b.listLen(t), "at most one")
	w := waits(t, b.Store, time.Minute)
	defer w.Listen()()
	w.Arm()
	assert.True(t, <-w.C())
}

func TestAfterTheFallbackAListenerLooksByItself(t *testing.T) {
	t.Parallel()
	b, _ := named(t)
	w := waits(t, b.Store, 60*time.Millisecond)
	defer w.Listen()()
	for range 3 {
		began := time.Now()
		w.Arm()
		assert.False(t, <-w.C())
		assert.GreaterOrEqual(t, time.Since(began), 60*time.Millisecond)
		assert.Less(t, time.Since(began), 2*time.Second)
	}
}

func TestAWaiterThatIsNotArmedTakesNothing(t *testing.T) {
	t.Parallel()
	b, _ := named(t)
	w := waits(t, b.Store, 20*time.Millisecond)
	defer w.Listen()()
	w.Arm()
	<-w.C()
	require.NoError(t, b.Wake(t.Context()))
	select {
	case <-w.C():
		require.Fail(t, "each value needs a new Arm")
	case <-time.After(100 * time.Millisecond):
	}
	assert.EqualValues(t, 1, b.listLen(t))
}

func TestAWakeUpThatNobodyListensForAnyMoreIsPassedOn(t *testing.T) {
	t.Parallel()
	b, _ := named(t)
	w := waits(t, b.Store, time.Minute)
	leave := w.Listen()
	w.Arm()
	b.blocked(t, w)
	leave()
	require.NoError(t, b.Wake(t.Context()))
	require.Eventually(t, func() bool { return b.listLen(t) == 1 }, patience, pollEvery, "so that another process gets it")
	defer w.Listen()()
	w.Arm()
	assert.True(t, <-w.C(), "or this one, when it listens again")
}

func TestCloseEndsTheBlockingConnectionAndPassesOnWhatWasTaken(t *testing.T) {
	t.Parallel()
	b, _ := named(t)
	w := waits(t, b.Store, time.Minute)
	defer w.Listen()()
	w.Arm()
	b.blocked(t, w)
	began := time.Now()
	w.Close()
	assert.Less(t, time.Since(began), 5*time.Second)
	require.NoError(t, b.Wake(t.Context()))
	assert.EqualValues(t, 1, b.listLen(t), "nobody takes it any more")
	w.Close()

	w = waits(t, b.Store, time.Minute) // takes it, and nobody receives it: a listener that is busy
	answered := make(answers, 10)
	w.client.AddHook(answered)
	defer w.Listen()()
	w.Arm()
	for <-answered != "blpop" { // that the list is empty does not say that the answer has come
	}
	w.Close()
	assert.EqualValues(t, 1, b.listLen(t))
}

// answers tells of each command that was answered.
type answers chan string

func (answers) DialHook(next redis.DialHook) redis.DialHook { return next }

func (a answers) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if err == nil {
			a <- cmd.Name()
		}
		return err
	}
}

func (answers) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func TestTheBlockingConnectionIsNoneOfTheUsers(t *testing.T) {
	t.Parallel()
	b, rdb := named(t)
	b.put(t, "a")
	b.take(t, 1)
	before := rdb.PoolStats()
	w := waits(t, b.Store, time.Minute)
	defer w.Listen()()
	w.Arm()
	b.blocked(t, w)
	after := rdb.PoolStats()
	assert.Equal(t, before.TotalConns, after.TotalConns)
	assert.Equal(t, before.IdleConns, after.IdleConns)
	assert.Equal(t, before.Hits, after.Hits)
	assert.Equal(t, before.Misses, after.Misses)
	w.Close()
	assert.NoError(t, rdb.Ping(t.Context()).Err(), "the user's client is not closed with it")
}

func TestAKilledConnectionIsReplaced(t *testing.T) {
	t.Parallel()
	b, _ := named(t)
	w := waits(t, b.Store, time.Minute)
	defer w.Listen()()
	for range 3 {
		w.Arm()
		id := b.blocked(t, w)
		require.NoError(t, b.rdb.ClientKillByFilter(t.Context(), "ID", strconv.FormatInt(id, 10)).Err())
		assert.False(t, <-w.C(), "its listener looks by itself")
	}
	w.Arm()
	b.blocked(t, w)
	require.NoError(t, b.Wake(t.Context()))
	assert.True(t, <-w.C())
}

func TestNoBlockingConnectionCanBeMadeOfARing(t *testing.T) {
	t.Parallel()
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": "127.0.0.1:1"}})
	t.Cleanup(func() { _ = ring.Close() })
	store, err := NewStore(ring, "q", nil)
	require.NoError(t, err)
	_, err = NewWaiter(store, 0, nil)
	require.ErrorContains(t, err, "*redis.Ring")
	require.ErrorContains(t, err, "ClusterClient", "it says what would be right")
	assert.NoError(t, CanWait(redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})))
}

func TestAFallbackThatBlpopWouldTakeForNoneIsRefused(t *testing.T) {
	t.Parallel()
	b := onRedis(t)
	for _, fallback := range []time.Duration{-1, 1, time.Millisecond - 1} {
		_, err := NewWaiter(b.Store, fallback, nil)
		assert.Error(t, err, fallback)
	}
	w := waits(t, b.Store, time.Millisecond)
	defer w.Listen()()
	w.Arm()
	assert.False(t, <-w.C())
}
