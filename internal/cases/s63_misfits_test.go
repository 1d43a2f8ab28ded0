package cases

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/lease"
	"github.com/leaseq/leaseq/reaper"
	"github.com/leaseq/leaseq/reliable"
)

// Each pair of settings under which a job cannot be held for as long as it may take is refused when a Consumer is made,
// with both values; so are those that only just do not fit. Nothing is sent for it.
func TestS63_LimitsThatDoNotFitTheLeaseAreRefusedWithBothValues(t *testing.T) {
	t.Parallel()
	nobody := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // whoever dials it fails
	t.Cleanup(func() { require.NoError(t, nobody.Close()) })
	handler := reliable.HandlerFunc(func(context.Context, *reliable.Job) error { return nil })
	mux := reliable.NewMux()
	require.NoError(t, mux.HandleFunc("slow", handler, &reliable.HandleOptions{Timeout: 45 * time.Second}))
	for name, one := range map[string]struct {
		handler reliable.Handler
		lease   time.Duration
		o       reliable.ConsumerOptions
		says    []string // nil: it is accepted
	}{
		"a job's time, as in the case":  {handler, 30 * time.Second, reliable.ConsumerOptions{NoExtend: true, JobTimeout: time.Minute}, []string{"JobTimeout", "1m0s", "30s"}},
		"a job's time, by a nanosecond": {handler, 30 * time.Second, reliable.ConsumerOptions{NoExtend: true, JobTimeout: 30*time.Second + 1}, []string{"JobTimeout", "30.000000001s", "of 30s"}},
		"a job's time, exactly":         {handler, 30 * time.Second, reliable.ConsumerOptions{NoExtend: true, JobTimeout: 30 * time.Second}, nil},
		"a job's time, extended":        {handler, 30 * time.Second, reliable.ConsumerOptions{JobTimeout: time.Minute}, nil},
		"a kind's time":                 {mux, 30 * time.Second, reliable.ConsumerOptions{NoExtend: true}, []string{`"slow"`, "45s", "30s"}},
		"a kind's time, extended":       {mux, 30 * time.Second, reliable.ConsumerOptions{}, nil},
		"the drain":                     {handler, 5 * time.Second, reliable.ConsumerOptions{NoExtend: true, DrainTimeout: 20 * time.Second}, []string{"DrainTimeout", "20s", "5s"}},
		"the drain, exactly":            {handler, 5 * time.Second, reliable.ConsumerOptions{NoExtend: true, DrainTimeout: 5 * time.Second}, nil},
		"the drain, extended":           {handler, 5 * time.Second, reliable.ConsumerOptions{DrainTimeout: 20 * time.Second}, nil},
		"the defaults":                  {handler, 5 * time.Second, reliable.ConsumerOptions{NoExtend: true}, nil},
		"all at once": {mux, 5 * time.Second, reliable.ConsumerOptions{NoExtend: true, JobTimeout: time.Minute, DrainTimeout: 20 * time.Second},
			[]string{"JobTimeout of 1m0s", "DrainTimeout of 20s", `Timeout of 45s for kind "slow"`, "lease of 5s"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q, err := reliable.New(nobody, "s63", &reliable.QueueOptions{Lease: one.lease})
			require.NoError(t, err)
			c, err := reliable.NewConsumer(q, one.handler, &one.o)
			if one.says == nil {
				require.NoError(t, err)
				require.NotNil(t, c)
				return
			}
			require.Nil(t, c)
			require.Error(t, err)
			for _, part := range one.says {
				assert.Contains(t, err.Error(), part)
			}
		})
	}
}

// The interval of the heartbeat cannot be set, so that it cannot be set wrong: no option of a Consumer, of a claim by
// hand, or of the Keeper that both use is one. It is a third of whatever the lease is.
func TestS63_TheHeartbeatIsAThirdOfTheLeaseAndNoOptionSaysOtherwise(t *testing.T) {
	t.Parallel()
	for _, o := range []any{reliable.QueueOptions{}, reliable.ConsumerOptions{}, reliable.ClaimOptions{}, reliable.HandleOptions{}, lease.KeeperOptions{}} {
		kind := reflect.TypeOf(o)
		for i := range kind.NumField() {
			name := strings.ToLower(kind.Field(i).Name)
			for _, word := range []string{"beat", "interval", "every", "renew", "period"} {
				assert.False(t, strings.Contains(name, word) && name != "onbeat", "%s.%s", kind, kind.Field(i).Name)
			}
		}
	}
	l := newLane(t, nil)
	for _, length := range []time.Duration{time.Second, 1500 * time.Millisecond} {
		l.checkBeats(length)
	}
}

// checkBeats has a Keeper extend a lease of this length for some beats. Each comes when two thirds of the lease are left,
// or as much later as this machine is busy, but before its end.
func (l *lane) checkBeats(length time.Duration) {
	l.t.Helper()
	_, err := l.store.Publish(l.t.Context(), &lease.Policy{Lease: length})
	require.NoError(l.t, err)
	l.enqueue(reliable.Item{ID: "j", Kind: "case"})
	got, err := l.store.Claim(l.t.Context(), 1, nil)
	require.NoError(l.t, err)
	require.Len(l.t, got.Jobs, 1)
	require.Equal(l.t, length, got.Jobs[0].Length)
	beats := make(chan lease.Beat, 100)
	keeper, err := lease.NewKeeper(l.store, &lease.KeeperOptions{OnBeat: func(b lease.Beat) { beats <- b }})
	require.NoError(l.t, err)
	ctx, cancel := context.WithCancel(l.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- keeper.Run(ctx) }()
	hold := keeper.Hold(ctx, &got.Jobs[0])
	last := hold.Deadline()
	for range 3 {
		require.NoError(l.t, (<-beats).Err)
		next := hold.Deadline()
		assert.GreaterOrEqual(l.t, next.Sub(last), length/3-time.Millisecond, "from one beat to the next")
		assert.Equal(l.t, lease.HoldCurrent, hold.State(), "the beat came too late")
		last = next
	}
	hold.Done()
	cancel()
	require.NoError(l.t, <-ended)
	require.Equal(l.t, lease.HoldCurrent, hold.State())
	settled, err := l.store.Settle(l.t.Context(), []lease.Verdict{{Op: lease.Ack, ID: "j", Token: got.Jobs[0].Token}})
	require.NoError(l.t, err)
	require.NoError(l.t, settled[0].Err)
}

// When a lease ends is stored with the job by who claims it. A claim may ask for a longer one than the queue's, and not
// for a shorter one. Sidecars and consumers that sweep under all sorts of other options leave the stored ends as they
// are, to the millisecond, and go by nothing else.
func TestS63_SweepersGoByTheStoredEndsWhateverTheirOwnOptionsAre(t *testing.T) {
	t.Parallel()
	length := shape(600*time.Millisecond, 5*time.Second)
	l := newLane(t, &reliable.QueueOptions{Lease: length})
	l.enqueue(numberedItems("j", 5)...)
	ends, shorter := map[string]int64{}, &reliable.ShortLeaseError{}
	_, err := l.queue.Claim(t.Context(), 1, &reliable.ClaimOptions{Lease: length / 2})
	require.ErrorAs(t, err, &shorter)
	require.Equal(t, reliable.ShortLeaseError{Asked: length / 2, Published: length}, *shorter, "both values")
	for i := range 5 { // one, two … five leases long
		batch, err := l.queue.Claim(t.Context(), 1, &reliable.ClaimOptions{Lease: time.Duration(i+1) * length})
		require.NoError(t, err)
		require.Len(t, batch.Jobs, 1)
		ends[batch.Jobs[0].ID] = l.endOf(batch.Jobs[0].ID)
	}

	// A sidecar has no option for a lease at all. Its batches are of one, of 1,000 and of the default, and beside it
	// sweeps what a consumer has for that.
	for i := range reflect.TypeFor[reaper.Options]().NumField() {
		assert.NotContains(t, strings.ToLower(reflect.TypeFor[reaper.Options]().Field(i).Name), "lease")
	}
	for _, batch := range []int{1, 0, 1000} {
		l.sidecarWith(&reaper.Options{Queues: []string{l.name}, Batch: batch})
	}
	l.sweepOn(&lease.SweeperOptions{Batch: 3})
	claimedAt := time.UnixMilli(ends["j0"]).Add(-length)
	for i := range 5 {
		id := fmt.Sprintf("j%d", i)
		for {
			now, held := l.endsNow()
			for left, end := range held {
				require.Equal(t, ends[left], end, "the stored end of the lease on %s", left)
			}
			if _, still := held[id]; !still {
				require.GreaterOrEqual(t, now, ends[id], "%s was put back before its stored end", id)
				break
			}
			require.Less(t, now, ends[id]+5*length.Milliseconds()/4+60_000, "%s was not put back", id)
			if i == 2 { // in the middle of it, somebody publishes a longer lease for later claims
				_, err := l.store.Publish(t.Context(), &lease.Policy{Lease: 10 * length})
				require.NoError(t, err)
			}
			<-time.After(2 * time.Millisecond)
		}
	}
	counters := l.stats().Counters
	require.EqualValues(t, 5, counters["expired"], "each once")
	t.Logf("the last one was put back %v after the claims", l.serverTime().Sub(claimedAt))
}

// endOf is the stored end of a lease, in ms.
func (l *lane) endOf(id string) int64 {
	l.t.Helper()
	score, err := l.rdb.ZScore(l.t.Context(), l.keys.Key(string(lease.Processing)), id).Result()
	require.NoError(l.t, err)
	return int64(score)
}

// endsNow reads all stored ends, and Redis' clock after them, in one step, in ms.
func (l *lane) endsNow() (now int64, ends map[string]int64) {
	l.t.Helper()
	var all *redis.ZSliceCmd
	var clock *redis.TimeCmd
	_, err := l.rdb.TxPipelined(l.t.Context(), func(pipe redis.Pipeliner) error {
		all = pipe.ZRangeWithScores(l.t.Context(), l.keys.Key(string(lease.Processing)), 0, -1)
		clock = pipe.Time(l.t.Context())
		return nil
	})
	require.NoError(l.t, err)
	ends = map[string]int64{}
	for _, z := range all.Val() {
		ends[z.Member.(string)] = int64(z.Score)
	}
	return clock.Val().UnixMilli(), ends
}

// sidecarWith runs a Reaper until the test ends.
func (l *lane) sidecarWith(o *reaper.Options) {
	l.t.Helper()
	r, err := reaper.New(redistest.Client(l.t), o)
	require.NoError(l.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	l.t.Cleanup(func() {
		cancel()
		require.NoError(l.t, <-ended)
	})
}
