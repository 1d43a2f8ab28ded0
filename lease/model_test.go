package lease

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leaseq/leaseq/internal/script"
)

// A world is a queue, two processes, a third one that loses replies, and the model of it all.
type world struct {
	*model
	b      *bench
	stores [2]*Store
	ctx    context.Context
	t      *rapid.T

	from, to int64 // in µs of the server: the call under way ran in between

	session string // of the third process
	number  int
	seen    int64
	given   []Lease // by its last claim
}

// Any order of calls, with right and wrong tokens, by several processes, leaves exactly what the model says.
func TestAnyOrderOfCallsLeavesWhatTheModelSays(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		other := b.another(t, nil)
		rapid.Check(t, func(rt *rapid.T) {
			w := &world{model: newModel(), b: b, stores: [2]*Store{b.Store, other}, ctx: t.Context(), t: rt}
			var begin []string
			for _, name := range []string{"due", "processing", "dead", "jobs", "leases", "counts", "errors", "policy", "stats", "wake"} {
				begin = append(begin, b.key(name))
			}
			require.NoError(rt, b.rdb.Del(w.ctx, begin...).Err())
			rt.Repeat(map[string]func(*rapid.T){
				"enqueue": w.step(w.enqueue), "claim": w.step(w.claim), "settle": w.step(w.settle), "extend": w.step(w.extend),
				"expire": w.step(w.expire), "cancel": w.step(w.cancel), "redrive": w.step(w.redrive), "purge": w.step(w.purge),
				"publish": w.step(w.publish), "drain wake": w.step(w.drainWake), "lossy claim": w.step(w.lossyClaim),
				"": func(rt *rapid.T) { w.compare(rt, b.picture(w.ctx, rt)) },
			})
		})
	})
}

func (w *world) step(action func()) func(*rapid.T) {
	return func(rt *rapid.T) {
		w.t = rt
		action()
	}
}

func draw[V any](w *world, g *rapid.Generator[V], label string) V { return g.Draw(w.t, label) }

// run makes a call and notes when it ran.
func (w *world) run(call func() error) {
	before, err := w.b.rdb.Time(w.ctx).Result()
	require.NoError(w.t, err)
	require.NoError(w.t, call())
	after, err := w.b.rdb.Time(w.ctx).Result()
	require.NoError(w.t, err)
	w.from, w.to = before.UnixMicro(), after.UnixMicro()
}

// at is when something is due that the call gave a delay in ms.
func (w *world) at(delay int64) (from, to int64) {
	if delay == 0 {
		return w.from / 1000, w.to / 1000
	}
	return (w.from+999)/1000 + delay, (w.to+999)/1000 + delay
}

// now is the latest time that surely was not after the call.
func (w *world) now() int64 { return w.from / 1000 }

const hour = 3_600_000 // ms

var (
	anyID    = rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f"})
	anyDelay = rapid.SampledFrom([]int64{0, 0, hour})
	anyLimit = rapid.Custom(func(t *rapid.T) *int {
		if rapid.Bool().Draw(t, "own") {
			return ptr(rapid.IntRange(0, 2).Draw(t, "limit"))
		}
		return nil
	})
	someIDs = rapid.SliceOfN(anyID, 1, 4)
	aFew    = rapid.IntRange(1, 4)
)

// back notes that something became due: whoever waits must be woken if it is the new head, or claimable at once.
func (w *world) back(id string, delay, head int64) {
	from, to := w.at(delay)
	w.backAt(id, from, to, head)
}

func (w *world) backAt(id string, from, to, head int64) {
	w.move(id, Due, from, to)
	w.jobs[id].score = from
	if head < 0 || to < head || to <= w.to/1000 {
		w.wake = true
	}
}

func (w *world) publish() {
	retries, most := draw(w, rapid.IntRange(0, 2), "retries"), draw(w, rapid.IntRange(0, 2), "expiries")
	w.run(func() error {
		_, err := w.b.Publish(w.ctx, &Policy{MaxRetries: &retries, MaxExpiries: &most})
		return err
	})
	w.retries, w.most = retries, most
}

func (w *world) drainWake() {
	require.NoError(w.t, w.b.rdb.Del(w.ctx, w.b.key("wake")).Err())
	w.wake = false
}

// lossyClaim is a claim of the third process, whose reply of the claim before did or did not come.
func (w *world) lossyClaim() {
	n, saw := draw(w, rapid.IntRange(0, 3), "n"), draw(w, rapid.Bool(), "saw")
	if w.session == "" {
		w.openSession()
	}
	if saw {
		for _, l := range w.given {
			w.seen = l.Fence
			delete(w.unseen, l.Token)
		}
		w.known = append(w.known, w.given...)
		w.given = nil
	}
	w.waitForNextMilli() // so that what is given back is behind all that is due
	w.number++
	req := &script.Request{Script: claimScript, Args: []any{w.session, w.number, w.seen, n, 0, MaxBytes, "stub"}}
	w.run(func() error { w.b.runner.Send(w.ctx, req); return req.Err })
	released := 0
	for _, l := range w.given {
		j := w.jobs[l.ID]
		if j == nil || j.token != l.Token {
			continue
		}
		if j.cancelled {
			w.remove(l.ID)
			w.count("cancelled", 1)
			w.count("cancelled_processing", 1)
			continue
		}
		released++
		w.count("released", 1)
		w.move(l.ID, Due, w.from/1000, w.to/1000)
		j.score = w.to / 1000
	}
	claimed, err := claimed(&script.Call{Reply: req.Reply, SentAt: req.SentAt, Session: w.session, Number: uint64(w.number)}, nil)
	require.NoError(w.t, err)
	w.take(claimed, n, released)
	w.given = claimed.Jobs
	for _, l := range w.given {
		w.unseen[l.Token] = true
	}
}

// openSession has the third process claim nothing, in a session that nobody else will use.
func (w *world) openSession() {
	call := &script.Call{Op: "claim", Script: claimScript, Claim: 1, Seen: highestFence,
		ClaimArgs: func(int64, int) []any { return []any{0, 0, 0, MaxBytes, "stub"} }}
	sessions := script.NewSessions(w.b.runner, "lossy")
	require.NoError(w.t, sessions.Do(w.ctx, call))
	require.NoError(w.t, call.Err)
	w.session, w.number = call.Session, int(call.Number)
}

func (w *world) waitForNextMilli() {
	was, err := w.b.rdb.Time(w.ctx).Result()
	require.NoError(w.t, err)
	for now := was; now.UnixMilli() == was.UnixMilli(); {
		now, err = w.b.rdb.Time(w.ctx).Result()
		require.NoError(w.t, err)
	}
}

// take notes what a claim gave out.
func (w *world) take(got Claimed, n, released int) {
	var want []string
	for _, id := range w.in(Due) {
		if len(want) < n && w.jobs[id].score <= w.to/1000 {
			want = append(want, id)
		}
	}
	require.Equal(w.t, want, slices.Clip(append([]string(nil), idsOf(got.Jobs)...)))
	for _, l := range got.Jobs {
		j := w.jobs[l.ID]
		require.Greater(w.t, l.Fence, w.fence)
		require.Equal(w.t, j.record, string(l.Record))
		require.Equal(w.t, []int{j.failures, j.expiries, j.redrives}, []int{l.Failures, l.Expiries, l.Redrives})
		w.fence = l.Fence
		from, to := w.at(DefaultLease.Milliseconds())
		w.move(l.ID, Processing, from, to)
		j.token = l.Token
	}
	w.count("claimed", len(got.Jobs))
	if head := w.head(); head >= 0 && head <= w.to/1000 && len(got.Jobs)+released > 0 {
		w.wake = true
	}
}
