package lease

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/internal/model"
	"github.com/leaseq/leaseq/internal/netfault"
	"github.com/leaseq/leaseq/internal/redistest"
)

// A setting is a way to do the same.
type setting struct {
	name   string
	batch  int  // items of each call
	stores int  // that take turns
	flush  bool // the server forgets its scripts before each deed
	lossy  bool // every seventh reply of a script is lost
	eager  bool // the client repeats by itself, too
}

var settings = []setting{
	{name: "plain", batch: 100, stores: 1},
	{name: "one at a time", batch: 1, stores: 1},
	{name: "batches of three, three stores", batch: 3, stores: 3},
	{name: "scripts are forgotten", batch: 2, stores: 2, flush: true},
	{name: "replies are lost", batch: 3, stores: 2, lossy: true},
	{name: "replies are lost and the client repeats", batch: 2, stores: 1, lossy: true, eager: true},
}

// A deed is one thing to do, as data, so that it can be done in every setting.
type deed struct {
	what  string
	ids   []string
	delay time.Duration
	limit *int
	salt  int
}

var deeds = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) deed {
	return deed{
		what: rapid.SampledFrom([]string{"enqueue", "enqueue", "enqueue", "work", "work", "run out", "settle held", "cancel", "redrive", "redrive all", "purge", "purge all",
			"reschedule", "promote", "bury", "edit", "edit and redrive", "import", "retention", "forget all",
		}).Draw(t, "what"),
		ids:   rapid.SliceOfN(rapid.StringMatching(`[a-h]`), 1, 8).Draw(t, "ids"),
		delay: rapid.SampledFrom([]time.Duration{0, 0, 0, time.Hour}).Draw(t, "delay"),
		limit: anyLimit.Draw(t, "limit"),
		salt:  rapid.IntRange(0, 99).Draw(t, "salt"),
	}
}), 1, 12)

// The same deeds end in the same state, whatever the sizes of batches, the number of stores, what the server forgets and
// which replies are lost.
func TestTheSameDeedsEndInTheSameState(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t, nil)
	direct := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { require.NoError(t, direct.Close()) })
	proxy := redistest.Proxy(t, server.Addr())
	var calls atomic.Int64
	proxy.Decide(func(cmd []string) netfault.Action {
		if strings.HasPrefix(strings.ToLower(cmd[0]), "eval") && calls.Add(1)%7 == 0 {
			return netfault.DropReply
		}
		return netfault.Pass
	})
	patient := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
	eager := redis.NewClient(&redis.Options{Addr: proxy.Addr(), MaxRetries: 3, MinRetryBackoff: time.Millisecond, MaxRetryBackoff: 2 * time.Millisecond})
	t.Cleanup(func() { require.NoError(t, errors.Join(patient.Close(), eager.Close())) })
	var queues atomic.Int64
	rapid.Check(t, func(rt *rapid.T) {
		list := deeds.Draw(rt, "deeds")
		var first string
		for _, s := range settings {
			through := direct
			if s.lossy {
				through = patient
			}
			if s.eager {
				through = eager
			}
			d := newDoer(t, rt, s, through, direct, fmt.Sprintf("q%d", queues.Add(1)))
			for _, one := range list {
				d.do(one)
			}
			end := d.end()
			if first == "" {
				first = end
			}
			require.Equal(rt, first, end, "%s ends otherwise than %s", s.name, settings[0].name)
		}
	})
	require.Greater(t, proxy.Dropped(), int64(10), "nothing was lost: the run shows nothing")
}

// A doer does deeds in one setting, on a queue of its own.
type doer struct {
	setting
	*bench
	stores []*Store
	turn   int
	t      *rapid.T
	whole  *testing.T
	ctx    context.Context
	held   map[string]Lease
}

func newDoer(t *testing.T, rt *rapid.T, s setting, through, direct *redis.Client, queue string) *doer {
	d := &doer{setting: s, bench: &bench{rdb: direct, queue: queue}, t: rt, whole: t, ctx: t.Context(), held: map[string]Lease{}}
	for range s.stores {
		store, err := NewStore(through, queue, &StoreOptions{Holder: "test/1", Stub: []byte("stub")})
		require.NoError(rt, err)
		d.stores = append(d.stores, store)
	}
	d.Store = d.stores[0]
	_, err := d.Publish(d.ctx, &Policy{MaxRetries: ptr(2), MaxExpiries: ptr(1)})
	require.NoError(rt, err)
	return d
}

// next is the store whose turn it is.
func (d *doer) next() *Store {
	d.turn++
	return d.stores[d.turn%len(d.stores)]
}

// chunks has a call made for a few items at a time.
func chunks[V any](d *doer, items []V, call func(some []V) error) {
	for some := range slices.Chunk(items, d.batch) {
		require.NoError(d.t, call(some))
	}
}

func (d *doer) do(one deed) {
	if d.flush {
		require.NoError(d.t, d.rdb.ScriptFlush(d.ctx).Err())
	}
	switch one.what {
	case "enqueue":
		d.enqueue(one)
	case "work":
		d.work(one.salt)
	case "run out":
		d.expire()
	case "settle held":
		d.settleHeld(one.salt)
	case "cancel":
		chunks(d, one.ids, func(ids []string) error { _, err := d.next().Cancel(d.ctx, ids); return err })
	case "redrive":
		chunks(d, one.ids, func(ids []string) error { _, err := d.next().Redrive(d.ctx, ids); return err })
	case "purge":
		place := []Place{Due, Dead, Done}[one.salt%3]
		chunks(d, one.ids, func(ids []string) error { _, err := d.next().Purge(d.ctx, place, ids); return err })
	case "reschedule":
		chunks(d, one.ids, func(ids []string) error { _, err := d.next().Reschedule(d.ctx, one.delay, ids); return err })
	case "promote":
		chunks(d, one.ids, func(ids []string) error { _, err := d.next().Promote(d.ctx, ids); return err })
	case "bury":
		chunks(d, one.ids, func(ids []string) error { _, err := d.next().Bury(d.ctx, "by hand", ids); return err })
	case "edit", "edit and redrive":
		d.edit(one)
	case "import":
		d.imports(one)
	case "retention":
		d.retention(Policy{DoneAge: []time.Duration{time.Hour, 2 * time.Hour, NoLimit}[one.salt%3]})
	case "forget all":
		d.forgetAll()
	case "redrive all":
		d.all(func(s *Store, c *Cursor) error { _, err := s.RedriveNext(d.ctx, c, d.batch); return err })
	case "purge all":
		d.all(func(s *Store, c *Cursor) error { _, err := s.PurgeNext(d.ctx, Dead, c, d.batch); return err })
	}
}

// retention says whether acked jobs are kept.
func (d *doer) retention(p Policy) {
	_, err := d.next().Publish(d.ctx, &p)
	require.NoError(d.t, err)
}

// forgetAll has sweepers forget all that is in done.
func (d *doer) forgetAll() {
	d.retention(Policy{DoneKeep: ptr(0)})
	for more := true; more; {
		got, err := d.next().Retain(d.ctx, d.batch)
		more = err != nil || got.More // a lost reply is no answer: once more
	}
	d.retention(Policy{DoneKeep: ptr(NoLimit)})
}

func (d *doer) edit(one deed) {
	var edits []Edit
	for _, id := range one.ids {
		edits = append(edits, Edit{ID: id, Record: fmt.Appendf(nil, "%s edited %d", id, one.salt)})
	}
	chunks(d, edits, func(some []Edit) (err error) {
		if one.what == "edit" {
			_, err = d.next().Edit(d.ctx, some)
		} else {
			_, err = d.next().EditAndRedrive(d.ctx, some)
		}
		return err
	})
}

func (d *doer) imports(one deed) {
	var jobs []Kept
	for _, id := range one.ids {
		jobs = append(jobs, Kept{
			ID: id, Place: []Place{Due, Dead}[one.salt%2], At: time.UnixMilli(5), Record: fmt.Appendf(nil, "%s kept %d", id, one.salt),
			Failures: 1, MaxRetries: one.limit,
		})
	}
	chunks(d, jobs, func(some []Kept) error { _, err := d.next().Import(d.ctx, some); return err })
}

func (d *doer) all(call func(*Store, *Cursor) error) {
	for cursor := (Cursor{}); !cursor.Done; {
		require.NoError(d.t, call(d.next(), &cursor))
	}
}

func (d *doer) enqueue(one deed) {
	var items []Item
	for _, id := range one.ids {
		items = append(items, Item{ID: id, Record: fmt.Appendf(nil, "%s %d", id, one.salt), Delay: one.delay, MaxRetries: one.limit})
	}
	chunks(d, items, func(some []Item) error { _, err := d.next().Enqueue(d.ctx, some); return err })
}

// fate is what becomes of one attempt at a job: the same in every setting.
func fate(salt int, l *Lease) Verdict {
	h := fnv.New32a()
	fmt.Fprint(h, salt, l.ID, l.Attempt(), l.Redrives)
	v := verdict(Ack, *l)
	v.Reason = fmt.Sprintf("attempt %d", l.Attempt())
	switch h.Sum32() % 8 {
	case 0, 1:
		v.Op = Nack
	case 2:
		v.Op, v.Delay = Nack, time.Hour
	case 3:
		v.Op = Bury
	case 4:
		v.Op, v.Delay = Release, time.Hour
	case 5:
		v.Op = 0 // it is kept
	case 6:
		v.Result = []byte(v.Reason)
	}
	return v
}

// work claims until nothing is due, and settles all that is not kept.
func (d *doer) work(salt int) {
	for {
		store := d.next()
		got, err := store.Claim(d.ctx, d.batch, nil)
		require.NoError(d.t, err)
		var verdicts []Verdict
		for _, l := range got.Jobs {
			if v := fate(salt, &l); v.Op != 0 {
				verdicts = append(verdicts, v)
			} else {
				d.held[l.ID] = l
			}
		}
		if len(verdicts) > 0 {
			d.settle(verdicts)
		}
		if len(got.Jobs) == 0 && got.NextDue != 0 {
			return
		}
	}
}

func (d *doer) settle(verdicts []Verdict) {
	chunks(d, verdicts, func(some []Verdict) error {
		got, err := d.next().Settle(d.ctx, some)
		for i := range got {
			require.NoError(d.t, got[i].Err, "a verdict under the newest token")
		}
		return err
	})
}

func (d *doer) settleHeld(salt int) {
	var verdicts []Verdict
	for _, id := range slices.Sorted(maps.Keys(d.held)) {
		l := d.held[id]
		v := verdict([]Op{Ack, Nack, Bury, Release}[salt%4], l)
		v.Reason, v.Delay = "held", time.Hour
		verdicts = append(verdicts, v)
	}
	clear(d.held)
	if len(verdicts) > 0 {
		d.settle(verdicts)
	}
}

// expire has all that is held run out, and sweeps until nothing is left that has.
func (d *doer) expire() {
	for id := range d.held {
		require.NoError(d.t, d.rdb.ZAdd(d.ctx, d.key("processing"), redis.Z{Score: 1, Member: id}).Err())
	}
	clear(d.held)
	for more := true; more; {
		got, err := d.next().Expire(d.ctx, d.batch, true)
		more = err != nil || got.More // a lost reply is no answer: once more
	}
}

// end tells all that is left, but for times, tokens and what repeats cost: claims that nobody saw count as released.
func (d *doer) end() string {
	for _, store := range d.stores {
		require.NoError(d.t, store.Close(d.ctx))
	}
	p := d.picture(d.ctx, d.t)
	var out strings.Builder
	for _, place := range slices.Sorted(maps.Keys(p.Scores)) {
		for _, id := range slices.Sorted(maps.Keys(p.Scores[place])) {
			var reasons []string
			failures, _ := readFailures(p.Hashes["errors"][id])
			for _, f := range failures {
				reasons = append(reasons, fmt.Sprintf("%d %s", f.Attempt, f.Reason))
			}
			mark := strings.HasPrefix(p.Hashes["leases"][id], "!")
			fmt.Fprintf(&out, "%s: %s, record %q, counts %q, cancelled %v, errors %q, result %q\n", place, id, p.Hashes["jobs"][id], p.Hashes["counts"][id],
				mark, reasons, p.Hashes["results"][id])
		}
	}
	for _, name := range []string{"enqueued", "acked", "nacked", "buried", "expired", "died", "cancelled", "cancelled_processing", "redriven", "purged", "missing", "too_late", "refused",
		"rescheduled", "buried_by_hand", "edited", "imported", "forgotten"} {
		fmt.Fprintf(&out, "%s %d\n", name, d.counter(p, name))
	}
	fmt.Fprintf(&out, "claimed and not released %d\n", d.counter(p, "claimed")-d.counter(p, "released"))
	redistest.CheckQueue(d.whole, d.rdb, keys.DefaultPrefix, d.queue)
	if !d.lossy { // an open whose reply was lost leaves one that nobody uses
		require.Empty(d.t, p.Hashes["sessions"], "sessions are left")
	}
	return out.String()
}

func (d *doer) counter(p *model.Picture, name string) int {
	if p.Hashes["stats"][name] == "" {
		return 0
	}
	n, err := strconv.Atoi(p.Hashes["stats"][name])
	require.NoError(d.t, err)
	return n
}
