package lease

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/internal/model"
)

// A world is a queue, two processes, a third one that loses replies and repeats itself, and the model of it all.
type world struct {
	*model.Partition
	b       *bench
	stores  [2]*Store
	ctx     context.Context
	t       *rapid.T
	known   []Lease // every lease that was handed out, the lost ones too
	unseen  map[string]bool
	before  int64 // the highest fence before the call
	cursors map[string]*bulkCursor
	raw     rawProcess
	rated   bool // the rate's interval was published
}

// A bulkCursor is one bulk call after the other, as the store and as the model count them.
type bulkCursor struct {
	Cursor
	bound int64
}

// Any order of calls, with right and wrong tokens, by several processes, repeated, late and damaged, leaves exactly what
// the model says.
func TestAnyOrderOfCallsLeavesWhatTheModelSays(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		o := *b.rdb.Options()
		o.ReadTimeout = time.Minute // raw calls and sweeps are tried once, however busy the machine is
		patient := redis.NewClient(&o)
		t.Cleanup(func() { require.NoError(t, patient.Close()) })
		b = newBench(t, b.queue, patient, patient)
		loadScripts(t, b.rdb) // so that the two calls of an exchange run in one order
		rapid.Check(t, func(rt *rapid.T) {
			w := newWorld(t, rt, b)
			defer w.end(t)
			rt.Repeat(map[string]func(*rapid.T){
				"enqueue": w.step(w.enqueue), "claim": w.step(w.claim), "settle": w.step(w.settle), "extend": w.step(w.extend),
				"exchange": w.step(w.exchange), "expire": w.step(w.expire), "cancel": w.step(w.cancel),
				"redrive": w.step(w.redrive), "redrive on": w.step(w.redriveNext), "purge": w.step(w.purge), "purge on": w.step(w.purgeNext), "retain": w.step(w.retain), "grow old in done": w.step(w.grow),
				"reschedule": w.step(w.reschedule), "bury by ID": w.step(w.buryByID), "edit": w.step(w.edit), "import": w.step(w.imports),
				"publish": w.step(w.publish), "pause": w.step(w.pause), "resume": w.step(w.resume), "pass the rate": w.step(w.passRate), "drain wake": w.step(w.drainWake), "pass on": w.step(w.passOn),
				"lose a record": w.step(w.loseRecord), "forget sessions": w.step(w.forgetSessions),
				"lossy claim": w.step(w.lossyClaim), "raw call": w.step(w.rawCall), "raw repeat": w.step(w.rawRepeat),
				"raw seal": w.step(w.rawSeal), "raw stranger": w.step(w.rawStranger), "begin a record": w.step(w.beginRecord),
				"": func(rt *rapid.T) { w.compare(rt) },
			})
		})
	})
}

// newWorld begins with an empty queue and new stores, so that the same draws do the same.
func newWorld(t *testing.T, rt *rapid.T, b *bench) *world {
	w := &world{
		Partition: model.NewPartition("stub"), b: b, ctx: t.Context(), t: rt,
		unseen: map[string]bool{}, cursors: map[string]*bulkCursor{},
	}
	for i := range w.stores {
		var err error
		w.stores[i], err = NewStore(b.rdb, b.queue, &StoreOptions{Holder: "test/1", Stub: []byte("stub")})
		require.NoError(rt, err)
	}
	return w
}

// end closes the stores, which do nothing to jobs, and empties the queue.
func (w *world) end(t *testing.T) {
	for _, store := range w.stores {
		require.NoError(t, store.Close(context.Background()))
	}
	all := make([]string, len(keys.Names))
	for i, name := range keys.Names {
		all[i] = w.b.key(name)
	}
	for _, name := range recordNames() {
		all = append(all, w.b.recordKey(name))
	}
	require.NoError(t, w.b.rdb.Del(context.Background(), all...).Err())
}

func (w *world) step(action func()) func(*rapid.T) {
	return func(rt *rapid.T) {
		w.t = rt
		action()
	}
}

func draw[V any](w *world, g *rapid.Generator[V], label string) V { return g.Draw(w.t, label) }

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

// compare asserts that Redis holds what the model says.
func (w *world) compare(t *rapid.T) {
	got := w.b.picture(w.ctx, t)
	got.Kept = w.b.allKept(w.ctx, t)
	if bad := w.Compare(got); len(bad) > 0 {
		t.Fatalf("model and Redis differ:\n%s", strings.Join(bad, "\n"))
	}
}

// An answered call is what a session's record tells of it.
type answered struct {
	session string
	opened  bool // for this call
	claim   bool
	model.Session
}

// call makes numbered calls, and returns those that were answered, in the order in which they ran: one that had to open
// a session first ran after one that had not, and of two such the one whose session is older ran first.
func (w *world) call(calls int, call func() error) []answered {
	w.before = w.Fence
	require.NoError(w.t, call())
	got := w.b.picture(w.ctx, w.t)
	var out []answered
	for _, name := range slices.Sorted(maps.Keys(got.Hashes["sessions"])) {
		before, known := w.Sessions[name]
		now := readSession(w.t, got.Hashes["sessions"][name])
		if known && now == before {
			continue
		}
		require.Equal(w.t, before.Number+1, now.Number, "session %s", name)
		if !known {
			w.opened(name, got)
		}
		claim := strings.Count(now.Rest, " ") == 2 // a settle's answer has no blank
		out = append(out, answered{session: name, opened: !known, claim: claim, Session: now})
	}
	require.Len(w.t, out, calls, "sessions that the call used")
	slices.SortFunc(out, func(a, b answered) int {
		if byTime := cmp.Or(cmp.Compare(a.When, b.When), order(a.opened, b.opened)); byTime != 0 {
			return byTime
		}
		if a.opened {
			return cmp.Compare(a.session, b.session) // names begin with the time of the open
		}
		return order(a.claim, b.claim)
	})
	for _, a := range out {
		w.Answered(a.session, a.Number, a.When, a.Rest)
	}
	return out
}

// order puts what is not before what is.
func order(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// opened notes a session that was made on the way.
func (w *world) opened(name string, got *model.Picture) {
	fence, err := strconv.ParseInt(strings.SplitN(name, "-", 2)[0], 10, 64)
	require.NoError(w.t, err)
	require.Greater(w.t, fence, w.before)
	w.Fence = max(w.Fence, fence)
	w.Holders[name] = got.Hashes["holders"][name]
	require.NotEmpty(w.t, w.Holders[name])
}

func readSession(t require.TestingT, text string) model.Session {
	parts := strings.SplitN(text, " ", 3)
	require.Len(t, parts, 3, text)
	number, err := strconv.ParseUint(parts[0], 10, 64)
	require.NoError(t, err)
	when, err := strconv.ParseInt(parts[1], 10, 64)
	require.NoError(t, err)
	return model.Session{Number: number, When: when, Rest: parts[2]}
}

// picture reads all that Redis holds of the queue.
func (b *bench) picture(ctx context.Context, t require.TestingT) *model.Picture {
	p := &model.Picture{Scores: map[string]map[string]int64{}, Hashes: map[string]map[string]string{}}
	places, hashes := map[string]*redis.ZSliceCmd{}, map[string]*redis.MapStringStringCmd{}
	var wake *redis.IntCmd
	var fence *redis.StringCmd
	_, err := b.rdb.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		for _, place := range []string{model.Due, model.Processing, model.Dead, model.Done} {
			places[place] = pipe.ZRangeWithScores(ctx, b.key(place), 0, -1)
		}
		for _, name := range []string{"jobs", "leases", "counts", "errors", "results", "stats", "sessions", "holders", "sweep"} {
			hashes[name] = pipe.HGetAll(ctx, b.key(name))
		}
		wake, fence = pipe.LLen(ctx, b.key("wake")), pipe.Get(ctx, b.key("fence"))
		return nil
	})
	if err != redis.Nil { // there is no fence at first
		require.NoError(t, err)
	}
	for place, cmd := range places {
		p.Scores[place] = map[string]int64{}
		for _, z := range cmd.Val() {
			p.Scores[place][fmt.Sprint(z.Member)] = int64(z.Score)
		}
	}
	for name, cmd := range hashes {
		p.Hashes[name] = maps.Clone(cmd.Val())
	}
	p.Wake = wake.Val()
	p.Fence, _ = strconv.ParseInt(fence.Val(), 10, 64)
	return p
}
