package lease

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/internal/redistest"
)

// onFullServer makes a bench on a server of its own. fill leaves it no memory at all, and free gives it back.
func onFullServer(t *testing.T) (b *bench, fill, free func()) {
	t.Helper()
	server := redistest.Server(t, nil)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	ctx := t.Context()
	require.NoError(t, rdb.ConfigSet(ctx, "maxmemory-policy", "noeviction").Err())
	t.Cleanup(func() { redistest.CheckQueue(t, rdb, keys.DefaultPrefix, "full") })
	b = newBench(t, "full", rdb, rdb)
	fill = func() {
		require.NoError(t, rdb.ConfigSet(ctx, "maxmemory", "1").Err())
		require.ErrorContains(t, rdb.Set(ctx, "more", "x", 0).Err(), "OOM")
	}
	free = func() { require.NoError(t, rdb.ConfigSet(ctx, "maxmemory", "0").Err()) }
	t.Cleanup(func() { _ = rdb.ConfigSet(context.Background(), "maxmemory", "0").Err() })
	return b, fill, free
}

func TestEveryCallButEnqueueRunsToItsEndWhenMemoryIsFull(t *testing.T) {
	t.Parallel()
	b, fill, free := onFullServer(t)
	ctx := t.Context()
	b.bury(t, names("dead", 4)...)
	b.put(t, names("j", 30)...)
	b.putItems(t, Item{ID: "cancel", Record: []byte("r"), Delay: time.Hour}, Item{ID: "purge", Record: []byte("r"), Delay: time.Hour})
	fill()

	results, err := b.Enqueue(ctx, []Item{{ID: "new", Record: []byte(strings.Repeat("r", 1000))}})
	require.ErrorIs(t, err, ErrOutOfMemory)
	assert.Empty(t, results)
	assert.Equal(t, Nowhere, b.look(t, "new").Place)
	assert.False(t, b.rdb.HExists(ctx, b.key("jobs"), "new").Val(), "nothing is left behind")

	b.replacesNothing(t, "dead0001")

	l := b.take(t, 8)
	assert.Equal(t, []Settled{{}, {Place: Due}, {Place: Due}, {Place: Dead}}, b.settle(t,
		verdict(Ack, l[0]), Verdict{Op: Nack, ID: l[1].ID, Token: l[1].Token, Reason: strings.Repeat("r", 500)},
		verdict(Release, l[2]), Verdict{Op: Bury, ID: l[3].ID, Token: l[3].Token, Stack: strings.Repeat("s", 4000)}))
	done, settleErr, claimed, claimErr := b.Exchange(ctx, []Verdict{verdict(Ack, l[4])}, 3, nil)
	require.NoError(t, settleErr)
	require.NoError(t, claimErr)
	assert.Equal(t, []Settled{{}}, done)
	assert.Len(t, claimed.Jobs, 3)
	extended, err := b.Extend(ctx, time.Hour, []Held{held(l[5])})
	require.NoError(t, err)
	assert.NoError(t, extended.Results[0])
	assert.Equal(t, 1, b.expireAll(t, l[6]).ToDue)
	removed, err := b.Cancel(ctx, []string{"cancel", l[7].ID})
	require.NoError(t, err)
	assert.Equal(t, []Removed{{Cancelled: true}, {Cancelling: true}}, removed)
	redriven, err := b.Redrive(ctx, []string{"dead0000"})
	require.NoError(t, err)
	assert.NoError(t, redriven[0])
	n, err := b.RedriveNext(ctx, &Cursor{}, 1)
	require.NoError(t, err)
	assert.Equal(t, 1, n)
	purged, err := b.Purge(ctx, Due, []string{"purge"})
	require.NoError(t, err)
	assert.NoError(t, purged[0])
	n, err = b.PurgeNext(ctx, Dead, &Cursor{}, 1)
	require.NoError(t, err)
	assert.Equal(t, 1, n)
	b.managesDueAndDead(t)
	changed, err := b.Publish(ctx, &Policy{Lease: time.Minute})
	require.NoError(t, err)
	assert.True(t, changed)
	deleted, err := b.DeleteNext(ctx, 1, LeaveRunning)
	require.NoError(t, err)
	assert.Equal(t, 1, deleted.Jobs)
	left, err := b.Erase(ctx)
	require.NoError(t, err)
	assert.NotZero(t, left)
	require.NoError(t, b.Wake(ctx))
	_, _, err = b.TrimSessions(ctx, "0")
	require.NoError(t, err)
	_, err = b.Retain(ctx, 1)
	require.NoError(t, err)
	_, err = b.Stats(ctx)
	require.NoError(t, err)
	other := b.another(t, nil) // a process that starts now opens its sessions too
	takeFrom(t, other, 1)
	require.NoError(t, other.Close(ctx))

	free()
	b.put(t, "new")
	assert.Equal(t, Due, b.look(t, "new").Place)
}

// replacesNothing enqueues in the place of a job, which must be there, whole, when that is refused.
func (b *bench) replacesNothing(t *testing.T, id string) {
	t.Helper()
	before := b.look(t, id)
	results, err := b.Enqueue(t.Context(), []Item{{ID: id, Record: []byte("new"), Replace: true}})
	require.ErrorIs(t, err, ErrOutOfMemory)
	assert.Empty(t, results)
	after := b.look(t, id)
	before.In, after.In = 0, 0
	assert.Equal(t, before, after, "what was to be replaced is there, whole")
}

// managesDueAndDead does on a full server what changes jobs by ID; only what makes jobs is refused.
func (b *bench) managesDueAndDead(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	due, dead := "j0020", "dead0003"
	assert.True(t, b.pin(t, Policy{MaxLength: ptr(0)}))
	assert.True(t, b.unpin(t))
	for name, call := range map[string]func() ([]error, error){
		"reschedule": func() ([]error, error) { return b.Reschedule(ctx, time.Hour, []string{due}) },
		"promote":    func() ([]error, error) { return b.Promote(ctx, []string{due}) },
		"edit":       func() ([]error, error) { return b.Edit(ctx, []Edit{{ID: due, Record: []byte("r")}}) },
		"redrive":    func() ([]error, error) { return b.EditAndRedrive(ctx, []Edit{{ID: dead, Record: []byte("r")}}) },
		"bury":       func() ([]error, error) { return b.Store.Bury(ctx, strings.Repeat("r", 500), []string{"j0021"}) },
	} {
		got, err := call()
		require.NoError(t, err, name)
		assert.NoError(t, got[0], name)
	}
	_, err := b.Import(ctx, []Kept{{ID: "imported", Place: Dead, At: time.UnixMilli(1), Record: []byte("r")}})
	require.ErrorIs(t, err, ErrOutOfMemory)
	assert.Equal(t, Nowhere, b.look(t, "imported").Place)
}

func TestBooksBalanceAfterAThousandMixedCallsAtTheLimitOfMemory(t *testing.T) {
	t.Parallel()
	b, fill, free := onFullServer(t)
	ctx := t.Context()
	b.publish(t, Policy{MaxRetries: ptr(3), MaxExpiries: ptr(3)})
	b.put(t, names("j", 300)...)
	created, refused := 300, 0
	var held []Lease
	for i := range 1000 {
		if i%250 == 0 {
			fill()
		} else if i%250 == 200 {
			free()
		}
		switch rand.N(7) {
		case 0:
			_, err := b.Enqueue(ctx, []Item{{ID: fmt.Sprint("new", i), Record: record("new")}})
			if err == nil {
				created++
			} else {
				require.ErrorIs(t, err, ErrOutOfMemory)
				refused++
			}
		case 1, 2:
			got, err := b.Claim(ctx, 5, nil)
			require.NoError(t, err)
			held = append(held, got.Jobs...)
		case 3, 4, 5:
			if len(held) > 0 {
				v := verdict([]Op{Ack, Nack, Release, Bury}[rand.N(4)], held[0])
				held = held[1:]
				b.settle(t, v)
			}
		case 6:
			if len(held) > 3 {
				b.expireAll(t, held[len(held)-1])
				held = held[:len(held)-1]
				_, err := b.RedriveNext(ctx, &Cursor{}, 3)
				require.NoError(t, err)
			}
		}
	}
	free()
	assert.Greater(t, refused, 20)
	stats, err := b.Stats(ctx)
	require.NoError(t, err)
	assert.EqualValues(t, created, stats.Counters["enqueued"])
	assert.EqualValues(t, created, stats.Counters["acked"]+stats.Due+stats.Processing+stats.Dead, "no job is lost, and none is there twice")
	assert.EqualValues(t, stats.Due+stats.Processing+stats.Dead, stats.Records)
	assert.Len(t, held, int(stats.Processing))
}
