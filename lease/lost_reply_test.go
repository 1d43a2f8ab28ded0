package lease

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/netfault"
	"github.com/leaseq/leaseq/internal/script"
)

// A mutation is a call that must take effect once, however often it is sent.
type mutation struct {
	script  *script.Script
	prepare func(t *testing.T, b *bench, id string) Lease
	call    func(ctx context.Context, b *bench, id string, l Lease) (item, whole error)
	stat    string
	after   Place
}

func inHand(t *testing.T, b *bench, id string) Lease {
	b.put(t, id)
	return b.take(t, 1)[0]
}

func dead(t *testing.T, b *bench, id string) Lease {
	b.bury(t, id)
	return Lease{}
}

// waiting is a job that is due in an hour.
func waiting(t *testing.T, b *bench, id string) Lease {
	b.putItems(t, Item{ID: id, Record: record(id), Delay: time.Hour})
	return Lease{}
}

func settling(op Op, stat string, after Place) mutation {
	return mutation{settleScript, inHand, func(ctx context.Context, b *bench, id string, l Lease) (error, error) {
		got, err := b.Settle(ctx, []Verdict{{Op: op, ID: id, Token: l.Token, Delay: time.Hour}})
		if got == nil {
			return err, err
		}
		return got[0].Err, err
	}, stat, after}
}

func each(errs []error, err error) (item, whole error) {
	if len(errs) == 0 {
		return err, err
	}
	return errs[0], err
}

var mutations = map[string]mutation{
	"enqueue": {enqueueScript, func(*testing.T, *bench, string) Lease { return Lease{} },
		func(ctx context.Context, b *bench, id string, _ Lease) (error, error) {
			return each(b.Enqueue(ctx, []Item{{ID: id, Record: []byte("r"), Delay: time.Hour}}))
		}, "enqueued", Due},
	"ack":     settling(Ack, "acked", Nowhere),
	"nack":    settling(Nack, "nacked", Due),
	"release": settling(Release, "released", Due),
	"bury":    settling(Bury, "buried", Dead),
	"cancel": {cancelScript, dead, func(ctx context.Context, b *bench, id string, _ Lease) (error, error) {
		got, err := b.Cancel(ctx, []string{id})
		if len(got) == 0 {
			return err, err
		}
		return got[0].Err, err
	}, "cancelled", Nowhere},
	"redrive": {redriveScript, dead, func(ctx context.Context, b *bench, id string, _ Lease) (error, error) {
		return each(b.Redrive(ctx, []string{id}))
	}, "redriven", Due},
	"redrive next": {redriveScript, dead, func(ctx context.Context, b *bench, _ string, _ Lease) (error, error) {
		_, err := b.RedriveNext(ctx, &Cursor{}, 10)
		return err, err
	}, "redriven", Due},
	"purge": {purgeScript, dead, func(ctx context.Context, b *bench, id string, _ Lease) (error, error) {
		return each(b.Purge(ctx, Dead, []string{id}))
	}, "purged", Nowhere},
	"purge next": {purgeScript, dead, func(ctx context.Context, b *bench, _ string, _ Lease) (error, error) {
		_, err := b.PurgeNext(ctx, Dead, &Cursor{}, 10)
		return err, err
	}, "purged", Nowhere},
	"reschedule": {rescheduleScript, waiting, func(ctx context.Context, b *bench, id string, _ Lease) (error, error) {
		return each(b.Reschedule(ctx, time.Hour, []string{id}))
	}, "rescheduled", Due},
	"promote": {rescheduleScript, waiting, func(ctx context.Context, b *bench, id string, _ Lease) (error, error) {
		return each(b.Promote(ctx, []string{id}))
	}, "rescheduled", Due},
	"bury by ID": {buryScript, waiting, func(ctx context.Context, b *bench, id string, _ Lease) (error, error) {
		return each(b.Store.Bury(ctx, "set aside", []string{id}))
	}, "buried_by_hand", Dead},
	"edit": {editScript, dead, func(ctx context.Context, b *bench, id string, _ Lease) (error, error) {
		return each(b.Edit(ctx, []Edit{{ID: id, Record: []byte("new")}}))
	}, "edited", Dead},
	"edit and redrive": {editScript, dead, func(ctx context.Context, b *bench, id string, _ Lease) (error, error) {
		return each(b.EditAndRedrive(ctx, []Edit{{ID: id, Record: []byte("new")}}))
	}, "redriven", Due},
	"import": {importScript, func(*testing.T, *bench, string) Lease { return Lease{} }, func(ctx context.Context, b *bench, id string, _ Lease) (error, error) {
		return each(b.Import(ctx, []Kept{{ID: id, Place: Dead, At: time.UnixMilli(5), Record: []byte("r"), Failures: 1}}))
	}, "imported", Dead},
	"delete": {deleteScript, dead, func(ctx context.Context, b *bench, _ string, _ Lease) (error, error) {
		_, err := b.DeleteNext(ctx, 10, RefuseRunning)
		return err, err
	}, "purged", Nowhere},
	"delete what runs": {deleteScript, inHand, func(ctx context.Context, b *bench, _ string, _ Lease) (error, error) {
		_, err := b.DeleteNext(ctx, 10, EndRunning)
		return err, err
	}, "cancelled_processing", Nowhere},
}

func TestEveryCallTakesEffectOnceAndGetsItsFirstAnswerThoughRepliesAreLost(t *testing.T) {
	t.Parallel()
	for name, m := range mutations {
		for _, action := range []netfault.Action{netfault.DropReply, netfault.DropRequest} {
			t.Run(name+" "+action.String(), func(t *testing.T) {
				t.Parallel()
				b, proxy := behindProxy(t, nil)
				for i := range 3 {
					id := fmt.Sprint("j", i)
					l := m.prepare(t, b, id)
					was := b.count(t, m.stat)
					seen := intercept(proxy, m.script, first(int64(i+1), action))
					item, whole := m.call(t.Context(), b, id, l)
					proxy.Decide(nil)
					require.NoError(t, whole)
					require.NoError(t, item, "the first answer")
					assert.EqualValues(t, i+2, seen.Load())
					assert.Equal(t, was+1, b.count(t, m.stat), "it ran once")
					assert.Equal(t, m.after, b.look(t, id).Place)
				}
			})
		}
	}
}

func TestACallThatWasAbandonedResolvesToWhatItAnswered(t *testing.T) {
	t.Parallel()
	for name, m := range mutations {
		for _, action := range []netfault.Action{netfault.DropReply, netfault.DropRequest} {
			t.Run(name+" "+action.String(), func(t *testing.T) {
				t.Parallel()
				b, proxy := behindProxy(t, nil)
				l := m.prepare(t, b, "j")
				was, place := b.count(t, m.stat), b.look(t, "j").Place
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				intercept(proxy, m.script, func(int64) netfault.Action { cancel(); return action })
				item, whole := m.call(ctx, b, "j", l)
				for _, err := range []error{item, whole} {
					require.ErrorIs(t, err, context.Canceled)
					if action == netfault.DropReply {
						assert.NoError(t, resolved(t, err))
					} else {
						assert.ErrorIs(t, resolved(t, err), ErrNeverRan)
					}
				}
				proxy.Decide(nil)
				ran := action == netfault.DropReply
				assert.Equal(t, ran, b.count(t, m.stat) == was+1)
				assert.Equal(t, ran || place == m.after, b.look(t, "j").Place == m.after)
			})
		}
	}
}

func TestTheTruthOfEachItemIsItsOwn(t *testing.T) {
	t.Parallel()
	b, proxy := behindProxy(t, nil)
	b.put(t, "old")
	abandon := func(sc *script.Script) context.Context {
		ctx, cancel := context.WithCancel(t.Context())
		intercept(proxy, sc, func(int64) netfault.Action { cancel(); return netfault.DropReply })
		return ctx
	}
	created, err := b.Enqueue(abandon(enqueueScript), []Item{{ID: "new", Record: []byte("r")}, {ID: "old", Record: []byte("r")}})
	require.Error(t, err)
	assert.NoError(t, resolved(t, created[0]))
	assert.Equal(t, &DuplicateError{ID: "old", Place: Due}, resolved(t, created[1]))
	assert.NoError(t, resolved(t, err), "the call as a whole ran")

	proxy.Decide(nil)
	l := b.take(t, 2)
	settled, err := b.Settle(abandon(settleScript), []Verdict{
		verdict(Ack, l[0]), verdict(Ack, l[0]), {Op: Ack, ID: l[1].ID, Token: "1:s:1"}, verdict(Bury, l[1]),
	})
	require.Error(t, err)
	assert.NoError(t, resolved(t, settled[0].Err))
	assert.ErrorIs(t, resolved(t, settled[1].Err), ErrGone)
	assert.Equal(t, &LostError{ID: l[1].ID, Place: Processing}, resolved(t, settled[2].Err))
	assert.NoError(t, resolved(t, settled[3].Err))

	redriven, err := b.Redrive(abandon(redriveScript), []string{l[0].ID, l[1].ID, l[1].ID})
	require.Error(t, err)
	assert.ErrorIs(t, resolved(t, redriven[0]), ErrGone)
	assert.NoError(t, resolved(t, redriven[1]))
	assert.Equal(t, &LostError{ID: l[1].ID, Place: Due}, resolved(t, redriven[2]))

	removed, err := b.Cancel(abandon(cancelScript), []string{l[1].ID, l[1].ID})
	require.Error(t, err)
	assert.NoError(t, resolved(t, removed[0].Err))
	assert.ErrorIs(t, resolved(t, removed[1].Err), ErrGone)
}

// The job was made, claimed and acked before the repeat of its enqueue arrives.
func TestARepeatedEnqueueMakesNoSecondJobThoughTheFirstIsDoneAlready(t *testing.T) {
	t.Parallel()
	b, proxy := behindProxy(t, nil)
	direct := b.another(t, b.rdb)
	intercept(proxy, enqueueScript, func(n int64) netfault.Action {
		if n == 1 {
			return netfault.DropReply
		}
		got, err := direct.Claim(context.Background(), 1, nil)
		if assert.NoError(t, err) && assert.Len(t, got.Jobs, 1) {
			_, err = direct.Settle(context.Background(), []Verdict{verdict(Ack, got.Jobs[0])})
			assert.NoError(t, err)
		}
		return netfault.Pass
	})
	b.put(t, "a")
	assert.Equal(t, Nowhere, b.look(t, "a").Place)
	assert.Equal(t, 1, b.count(t, "enqueued"))
	proxy.Decide(nil)
	b.put(t, "a") // a new call is a new request
	assert.Equal(t, 2, b.count(t, "enqueued"))
}

// The nack ran, the job was claimed by another, and then the repeat of the nack arrives.
func TestARepeatedNackDoesNotTouchTheNextHoldersLease(t *testing.T) {
	t.Parallel()
	b, proxy := behindProxy(t, nil)
	direct := b.another(t, b.rdb)
	l := inHand(t, b, "a")
	var next []Lease
	taken := make(chan []Lease, 1)
	intercept(proxy, settleScript, func(n int64) netfault.Action {
		if n == 1 {
			return netfault.DropReply
		}
		got, err := direct.Claim(context.Background(), 1, nil)
		assert.NoError(t, err)
		taken <- got.Jobs
		return netfault.Pass
	})
	assert.Equal(t, Settled{Place: Due}, b.settle(t, verdict(Nack, l))[0])
	next = <-taken
	require.Len(t, next, 1)
	assert.Equal(t, 1, next[0].Failures)
	assert.Equal(t, next[0].Token, b.rdb.HGet(t.Context(), b.key("leases"), "a").Val())
	assert.Equal(t, 1, b.look(t, "a").Failures)
}
