package lease

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// pass lets time go by for the sweeps and leases of a queue; below zero the server's clock is set back.
func (b *bench) pass(t *testing.T, d time.Duration) {
	t.Helper()
	ctx := t.Context()
	for field, text := range b.rdb.HGetAll(ctx, b.key("sweep")).Val() {
		if field == "row" || text == "0" {
			continue
		}
		ms, err := strconv.ParseInt(text, 10, 64)
		require.NoError(t, err)
		require.NoError(t, b.rdb.HSet(ctx, b.key("sweep"), field, ms-d.Milliseconds()).Err())
	}
	for _, z := range b.rdb.ZRangeWithScores(ctx, b.key("processing"), 0, -1).Val() {
		require.NoError(t, b.rdb.ZAdd(ctx, b.key("processing"), redis.Z{Score: z.Score - float64(d.Milliseconds()), Member: z.Member}).Err())
	}
}

// overdue sees to it that one lease has run out.
func (b *bench) overdue(t *testing.T) {
	t.Helper()
	if info := b.look(t, "x"); info.Place == Nowhere {
		b.putItems(t, Item{ID: "x", Record: []byte("r"), MaxExpiries: ptr(1000)})
	}
	if b.look(t, "x").Place == Due {
		b.take(t, 1)
	}
	b.runOut(t, Lease{ID: "x"})
}

// A sweepStep is a sweep after a gap, as a part of the lease.
type sweepStep struct {
	gap   float64
	spare float64 // the part of a lease that is spared; 0: what has run out expires
	row   int
}

func TestTheOutageGraceIsJudgedBySequencesOfSweeps(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		for name, steps := range map[string][]sweepStep{
			"the first sweep begins one, and it ends":                                {{0, 1, 1}, {0.25, 0.75, 1}, {0.25, 0.5, 1}, {0.25, 0.25, 1}, {0.25, 0, 0}, {0.25, 0, 0}},
			"half a lease is no gap":                                                 {{0, 1, 1}, {0.49, 0.51, 1}, {0.49, 0.02, 1}, {0.49, 0, 0}, {0.49, 0, 0}},
			"more than half a lease is one":                                          {{0, 1, 1}, {0.49, 0.51, 1}, {0.49, 0.02, 1}, {0.49, 0, 0}, {0.51, 1, 1}},
			"sweeps that always come late expire at every fourth":                    {{0, 1, 1}, {1.1, 1, 2}, {1.1, 1, 3}, {1.1, 0, 0}, {1.1, 1, 1}, {9, 1, 2}, {9, 1, 3}, {9, 0, 0}},
			"a gap inside a grace begins it anew, three times":                       {{0, 1, 1}, {0.6, 1, 2}, {0.6, 1, 3}, {0.6, 0.4, 3}, {0.2, 0.2, 3}, {0.25, 0, 0}},
			"a fourth gap does not":                                                  {{0, 1, 1}, {0.6, 1, 2}, {0.6, 1, 3}, {0.6, 0.4, 3}, {0.6, 0, 0}},
			"the row ends when something may expire":                                 {{0, 1, 1}, {0.6, 1, 2}, {0.4, 0.6, 2}, {0.4, 0.2, 2}, {0.4, 0, 0}, {0.6, 1, 1}, {0.6, 1, 2}, {0.6, 1, 3}},
			"a clock that is set back brings an ended one back, for a lease at most": {{0, 1, 1}, {0.4, 0.6, 1}, {0.4, 0.2, 1}, {0.4, 0, 0}, {-100, 1, 0}, {0.4, 0.6, 0}, {0.4, 0.2, 0}, {0.4, 0, 0}},
			"nor does it lengthen one beyond a lease":                                {{0, 1, 1}, {-50, 1, 1}, {0.4, 0.6, 1}, {0.4, 0.2, 1}, {0.4, 0, 0}},
			"a clock that is set forward spares the holders":                         {{0, 1, 1}, {0.4, 0.6, 1}, {0.4, 0.2, 1}, {0.4, 0, 0}, {1000, 1, 1}, {0.4, 0.6, 1}},
		} {
			require.NoError(t, b.rdb.Del(t.Context(), b.key("sweep")).Err())
			b.runSteps(t, name, steps)
		}
	})
}

func (b *bench) runSteps(t *testing.T, name string, steps []sweepStep) {
	t.Helper()
	const length = 1000 * time.Second
	b.publish(t, Policy{Lease: length})
	graces, row := b.count(t, "graces"), 0
	if text, err := b.rdb.HGet(t.Context(), b.key("sweep"), "row").Result(); err == nil {
		row, err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	for i, step := range steps {
		b.pass(t, time.Duration(step.gap*float64(length)))
		b.overdue(t)
		got, err := b.Expire(t.Context(), 10, false)
		require.NoError(t, err)
		assert.InDelta(t, step.spare, float64(got.Grace)/float64(length), 0.01, "%s, sweep %d: grace left", name, i+1)
		assert.Equal(t, step.spare == 0, got.Moved() == 1, "%s, sweep %d: moved %d", name, i+1, got.Moved())
		assert.Equal(t, strconv.Itoa(step.row), b.rdb.HGet(t.Context(), b.key("sweep"), "row").Val(), "%s, sweep %d: row", name, i+1)
		if step.row > row {
			graces++
		}
		row = step.row
		assert.Equal(t, graces, b.count(t, "graces"), "%s, sweep %d: graces counted", name, i+1)
	}
}

func TestASweepWithoutGraceNeitherReadsNorBeginsOne(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		ctx := t.Context()
		const length = 1000 * time.Second
		b.publish(t, Policy{Lease: length})
		b.overdue(t)
		got, err := b.Expire(ctx, 10, true)
		require.NoError(t, err)
		assert.Equal(t, 1, got.Moved())
		assert.Zero(t, got.Grace)
		sweep := b.rdb.HGetAll(ctx, b.key("sweep")).Val()
		assert.Len(t, sweep, 1, "it notes that it swept, and nothing else: %v", sweep)
		b.pass(t, length/4)
		b.runSteps(t, "no gap since", []sweepStep{{0, 0, 0}})

		b.runSteps(t, "in a grace", []sweepStep{{0.6, 1, 1}})
		before := b.rdb.HGetAll(ctx, b.key("sweep")).Val()
		b.overdue(t)
		got, err = b.Expire(ctx, 10, true)
		require.NoError(t, err)
		assert.Equal(t, 1, got.Moved())
		after := b.rdb.HGetAll(ctx, b.key("sweep")).Val()
		assert.Equal(t, []string{before["grace"], before["row"]}, []string{after["grace"], after["row"]})
		b.runSteps(t, "the grace goes on for the others", []sweepStep{{0.25, 0.75, 1}})
	})
}

func TestAShortenedLeaseShortensTheGrace(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.publish(t, Policy{Lease: time.Hour})
		got, err := b.Expire(t.Context(), 1, false)
		require.NoError(t, err)
		assert.Equal(t, time.Hour, got.Grace)
		b.publish(t, Policy{Lease: time.Minute})
		got, err = b.Expire(t.Context(), 1, false)
		require.NoError(t, err)
		assert.InDelta(t, time.Minute, got.Grace, float64(time.Second))
		assert.Equal(t, time.Minute, got.Lease)
	})
}

func TestTheGraceSparesALiveHolderAndEndsInTime(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		const length = time.Second
		b.publish(t, Policy{Lease: length})
		b.put(t, "a lives", "b died")
		leases := b.take(t, 2)
		b.runOut(t, leases...) // the server was down, and is back
		sweeper, err := NewSweeper(b.Store, nil)
		require.NoError(t, err)
		began := time.Now()
		swept := make(chan Expired, 1)
		go func() {
			got, err := sweeper.Sweep(context.Background(), 0, false) // one pass, as by cron
			assert.NoError(t, err)
			swept <- got
		}()
		require.Eventually(t, func() bool { return b.count(t, "graces") == 1 }, patience, pollEvery)
		got, err := b.Extend(t.Context(), time.Hour, []Held{held(leases[0])})
		require.NoError(t, err)
		require.NoError(t, got.Results[0], "the lease was not taken though it had run out")
		pass := <-swept
		assert.Equal(t, 1, pass.ToDue)
		assert.GreaterOrEqual(t, time.Since(began), length)
		assert.Equal(t, Processing, b.look(t, "a lives").Place)
		assert.Equal(t, Due, b.look(t, "b died").Place)
	})
}
