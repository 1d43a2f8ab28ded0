package lease

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leaseq/leaseq/internal/model"
	"github.com/leaseq/leaseq/internal/script"
)

func (w *world) publish() {
	p, same := &Policy{}, &w.Policy
	draws := func(label string) bool { return draw(w, rapid.Bool(), label) }
	if draws("lease") {
		p.Lease = draw(w, rapid.SampledFrom([]time.Duration{15 * time.Second, 20 * time.Second}), "length")
		same.Lease = p.Lease.Milliseconds()
	}
	if draws("limits") {
		same.MaxRetries, same.MaxExpiries = draw(w, rapid.IntRange(0, 2), "retries"), draw(w, rapid.IntRange(0, 2), "expiries")
		p.MaxRetries, p.MaxExpiries = &same.MaxRetries, &same.MaxExpiries
	}
	if draws("back-off") {
		p.ExpiryBackoff, p.ExpiryCap = time.Hour, 90*time.Minute
		same.ExpiryBackoff, same.BackoffCap = hour, hour*3/2
	}
	if draws("payloads") {
		p.PayloadLimit = 3
		same.PayloadLimit = 3
	}
	if draws("headers") {
		same.HeaderLimit = draw(w, anyLimit, "header limit")
		p.HeaderLimit = orTakenAway(same.HeaderLimit)
	}
	if draws("length") {
		same.MaxLength = draw(w, anyLimit, "length")
		p.MaxLength = orTakenAway(same.MaxLength)
	}
	if draws("concurrency") {
		before := same.Concurrency
		same.Concurrency = draw(w, rapid.SampledFrom([]*int{nil, ptr(0), ptr(1), ptr(2), ptr(3)}), "places")
		p.Concurrency = orTakenAway(same.Concurrency)
		w.Wake = w.Wake || !assert.ObjectsAreEqual(before, same.Concurrency)
	}
	if draws("rate") { // which nobody uses up twice while the test runs
		before := same.Rate
		same.Rate, same.RateInterval = draw(w, rapid.SampledFrom([]*int{nil, ptr(0), ptr(1), ptr(2)}), "starts"), hour
		p.Rate, p.RateInterval = orTakenAway(same.Rate), time.Hour
		w.Wake = w.Wake || !assert.ObjectsAreEqual(before, same.Rate) || !w.rated
		w.rated = true
	}
	if draws("delays") {
		same.MaxDelay = draw(w, rapid.SampledFrom([]int64{0, hour - 1, hour, 168 * hour}), "longest")
		p.MaxDelay = ptr(millis(same.MaxDelay))
	}
	if draws("dead") {
		same.DeadKeep = draw(w, anyLimit, "dead that are kept")
		p.DeadKeep, p.DeadAge, same.DeadAge = orTakenAway(same.DeadKeep), NoLimit, 0
		if draws("for some time") {
			p.DeadAge, same.DeadAge = time.Hour, hour
		}
	}
	w.drawDone(p, draws)
	_, err := w.stores[0].Publish(w.ctx, p)
	require.NoError(w.t, err)
}

// drawDone says whether acked jobs are kept.
func (w *world) drawDone(p *Policy, draws func(label string) bool) {
	same := &w.Policy
	if draws("done") {
		same.DoneKeep = draw(w, anyLimit, "done that are kept")
		p.DoneKeep, p.DoneAge = orTakenAway(same.DoneKeep), NoLimit
		before := same.DoneAge
		if same.DoneAge = draw(w, rapid.SampledFrom([]int64{0, hour, hour, 2 * hour}), "for so long"); same.DoneAge > 0 {
			p.DoneAge = millis(same.DoneAge)
		} else if before > 0 {
			same.DoneBefore = before
		}
	}
}

// pause has claims give nothing, for good, for an hour, or until a time that has passed.
func (w *world) pause() {
	until := draw(w, rapid.SampledFrom([]int64{0, 1, hour}), "until")
	if until == hour {
		until += w.time()
	}
	store, at := w.store(), time.Time{}
	if until != 0 {
		at = time.UnixMilli(until)
	}
	var refused error
	done := w.call(1, func() error {
		err := store.Pause(w.ctx, at)
		if until == 1 {
			refused, err = err, nil
		}
		return err
	})
	require.Equal(w.t, w.Pause(done[0].When, until), done[0].Rest)
	require.Equal(w.t, done[0].Rest == "e", refused != nil)
}

func (w *world) resume() {
	var was bool
	store := w.store()
	done := w.call(1, func() (err error) { was, err = store.Resume(w.ctx); return err })
	require.Equal(w.t, w.Resume(done[0].When), done[0].Rest)
	require.Equal(w.t, done[0].Rest == "p", was)
}

// passRate lets the time pass that the last starts take of the rate.
func (w *world) passRate() {
	w.RateNext = 0
	require.NoError(w.t, w.b.rdb.HDel(w.ctx, w.b.key("policy"), "rate_next_us").Err())
}

func orTakenAway(limit *int) *int {
	if limit == nil {
		return ptr(NoLimit)
	}
	return limit
}

func (w *world) drainWake() {
	require.NoError(w.t, w.b.rdb.Del(w.ctx, w.b.key("wake")).Err())
	w.Wake = false
}

func (w *world) passOn() {
	require.NoError(w.t, w.stores[0].Wake(w.ctx))
	w.Wake = true
}

// loseRecord deletes the record of a job in due or processing, as no script does.
func (w *world) loseRecord() {
	id := draw(w, anyID, "id")
	if code := w.Where(id); code != '1' && code != '2' {
		return
	}
	w.Jobs[id].Record = ""
	require.NoError(w.t, w.b.rdb.HDel(w.ctx, w.b.key("jobs"), id).Err())
}

// forgetSessions does what a sweeper's trim does, and too early.
func (w *world) forgetSessions() {
	for _, name := range slices.Sorted(maps.Keys(w.Sessions)) {
		if !draw(w, rapid.Bool(), "forget") {
			continue
		}
		req := &script.Request{Script: ownScript("close"), Args: []any{name}}
		w.b.runner.Send(w.ctx, req)
		require.NoError(w.t, req.Err)
		require.Equal(w.t, []any{"OK", int64(1)}, req.Reply)
		delete(w.Sessions, name)
		delete(w.Holders, name)
		w.raw.forget(w, name)
	}
}

func ownScript(name string) *script.Script {
	for _, sc := range script.Own() {
		if sc.Name == name {
			return sc
		}
	}
	panic("no script " + name)
}

func (w *world) cancel() {
	ids := draw(w, someIDs, "ids")
	records, names := w.drawRecords(ids)
	var got []Removed
	store := w.store()
	done := w.call(1, func() (err error) { got, err = store.Cancel(w.ctx, ids, records...); return err })
	codes := w.Cancel(ids, names...)
	require.Equal(w.t, codes, done[0].Rest)
	for i, code := range codes {
		require.Equal(w.t, map[rune]Removed{'c': {Cancelled: true}, 'p': {Cancelling: true}, '0': {Err: ErrGone}}[code], got[i])
	}
}

func (w *world) redrive() {
	ids := draw(w, someIDs, "ids")
	var got []error
	done := w.call(1, func() (err error) { got, err = w.stores[0].Redrive(w.ctx, ids); return err })
	w.byID(done[0], w.Redrive(done[0].When, ids), ids, got)
}

func (w *world) purge() {
	place, ids := draw(w, rapid.SampledFrom([]Place{Due, Dead, Done}), "place"), draw(w, someIDs, "ids")
	records, names := w.drawRecords(ids)
	var got []error
	done := w.call(1, func() (err error) { got, err = w.stores[0].Purge(w.ctx, place, ids, records...); return err })
	w.byID(done[0], w.Purge(done[0].When, string(place), ids, names...), ids, got)
}

func (w *world) byID(a answered, what string, ids []string, got []error) {
	require.Equal(w.t, what, a.Rest)
	codes := what[strings.LastIndexByte(what, ' ')+1:]
	for i, id := range ids {
		if codes[i] == 'o' {
			require.NoError(w.t, got[i])
		} else {
			require.Equal(w.t, refusal(id, codes[i]), got[i])
		}
	}
}

// redriveNext begins to redrive all, or goes on where it was left.
func (w *world) redriveNext() {
	w.next("redrive", model.Dead, w.RedriveNext, w.stores[0].RedriveNext)
}

// retain forgets dead and done jobs, some of which are old.
func (w *world) retain() {
	w.growOld(model.Dead)
	w.growOld(model.Done)
	n := draw(w, aFew, "n")
	var want Forgotten
	want.Dead, want.Done, want.More = w.Retain(time.Now().UnixMilli(), n)
	got, err := w.stores[0].Retain(w.ctx, n)
	require.NoError(w.t, err)
	require.Equal(w.t, want, got)
}

// grow has some jobs be in done since long ago, where no sweeper has come.
func (w *world) grow() { w.growOld(model.Done) }

// growOld moves the times of some jobs of a place.
func (w *world) growOld(place string) {
	for _, id := range w.In(place) {
		if draw(w, rapid.IntRange(0, 3), "is old") == 0 {
			at := int64(draw(w, aFew, "since"))
			w.Jobs[id].Score = model.Exactly(at)
			require.NoError(w.t, w.b.rdb.ZAdd(w.ctx, w.b.key(place), redis.Z{Score: float64(at), Member: id}).Err())
		}
	}
}

// purgeNext is the same for a purge.
func (w *world) purgeNext() {
	place := draw(w, rapid.SampledFrom([]Place{Due, Dead, Done}), "place")
	w.next("purge "+string(place), string(place),
		func(_, bound int64, n int) string { return w.PurgeNext(bound, string(place), n) },
		func(ctx ctxt, c *Cursor, n int) (int, error) { return w.stores[0].PurgeNext(ctx, place, c, n) })
}

func (w *world) next(what, place string, same func(now, bound int64, n int) string, call func(ctxt, *Cursor, int) (int, error)) {
	n := draw(w, aFew, "n")
	cursor := w.cursors[what]
	if cursor == nil || cursor.Done || draw(w, rapid.Bool(), "anew") {
		cursor = &bulkCursor{}
		w.cursors[what] = cursor
	}
	moved, before := 0, len(w.In(place))
	done := w.call(1, func() (err error) { moved, err = call(w.ctx, &cursor.Cursor, n); return err })
	if cursor.bound == 0 {
		cursor.bound = done[0].When
	}
	answer := same(done[0].When, cursor.bound, n)
	require.Equal(w.t, answer, done[0].Rest)
	require.Equal(w.t, before-len(w.In(place)), moved)
	require.Equal(w.t, strings.Contains(answer, " 0 "), cursor.Done)
}
