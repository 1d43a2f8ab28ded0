package lease

import (
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func (w *world) enqueue() {
	var items []Item
	var delays []int64
	for range draw(w, aFew, "items") {
		id := draw(w, anyID, "id")
		delays = append(delays, draw(w, anyDelay, "delay"))
		items = append(items, Item{
			ID: id, Record: fmt.Appendf(nil, "%s %d", id, len(w.known)), Delay: time.Duration(delays[len(delays)-1]) * time.Millisecond,
			MaxRetries: draw(w, anyLimit, "retries"), MaxExpiries: draw(w, anyLimit, "expiries"),
		})
	}
	var results []error
	w.run(func() (err error) { results, err = w.b.Enqueue(w.ctx, items); return err })
	head, earliest := w.head(), int64(-1)
	for i, item := range items {
		if place := w.place(item.ID); place != Nowhere {
			require.Equal(w.t, &DuplicateError{ID: item.ID, Place: place}, results[i])
			continue
		}
		require.NoError(w.t, results[i])
		w.count("enqueued", 1)
		w.jobs[item.ID] = &modelJob{record: string(item.Record), retries: item.MaxRetries, most: item.MaxExpiries}
		from, to := w.at(delays[i])
		w.move(item.ID, Due, from, to)
		if w.jobs[item.ID].score = from; earliest < 0 || from < earliest {
			earliest = from
		}
	}
	if earliest >= 0 && w.isEarlier(items, head) {
		w.wake = true
	}
}

// isEarlier asks Redis whether one of the items is due before the old head: the model knows their times only roughly.
func (w *world) isEarlier(items []Item, head int64) bool {
	for _, item := range items {
		score, err := w.b.rdb.ZScore(w.ctx, w.b.key("due"), item.ID).Result()
		if err == redis.Nil {
			continue
		}
		require.NoError(w.t, err)
		if head < 0 || int64(score) < head {
			return true
		}
	}
	return false
}

func (w *world) claim() {
	n := draw(w, aFew, "n")
	var got Claimed
	w.run(func() (err error) {
		got, err = w.stores[draw(w, rapid.IntRange(0, 1), "store")].Claim(w.ctx, n, nil)
		return err
	})
	w.take(got, n, 0)
	w.known = append(w.known, got.Jobs...)
}

// lease draws one that was ever given out, or one that never was.
func (w *world) lease() Lease {
	if len(w.known) == 0 || draw(w, rapid.IntRange(0, 9), "made up") == 0 {
		return Lease{ID: draw(w, anyID, "id"), Token: "1:nobody:1", due: "5"}
	}
	latest := w.known[max(0, len(w.known)-8):]
	return latest[draw(w, rapid.IntRange(0, len(latest)-1), "lease")]
}

func (w *world) settle() {
	var verdicts []Verdict
	for range draw(w, aFew, "verdicts") {
		l := w.lease()
		v := verdict(draw(w, rapid.SampledFrom([]Op{Ack, Nack, Release, Bury}), "op"), l)
		v.Delay, v.Reason = time.Duration(draw(w, anyDelay, "delay"))*time.Millisecond, "reason"
		if v.Op == Release && draw(w, rapid.Bool(), "keep") {
			v.KeepDue(&l)
		}
		verdicts = append(verdicts, v)
	}
	var got []Settled
	w.run(func() (err error) { got, err = w.stores[0].Settle(w.ctx, verdicts); return err })
	head, ended := w.head(), map[string]bool{}
	for i, v := range verdicts {
		j := w.jobs[v.ID]
		if j == nil || j.place != Processing || j.token != v.Token {
			require.Equal(w.t, refusal(v.ID, w.place(v.ID)), got[i].Err)
			if !ended[v.ID] {
				w.count("refused", 1)
			}
			continue
		}
		ended[v.ID] = true
		require.Equal(w.t, w.settled(v, j, head), got[i])
	}
}

func refusal(id string, place Place) error {
	if place == Nowhere {
		return ErrGone
	}
	return &LostError{ID: id, Place: place}
}

// settled notes a verdict on a current lease.
func (w *world) settled(v Verdict, j *modelJob, head int64) Settled {
	switch {
	case v.Op == Ack:
		w.remove(v.ID)
		w.count("acked", 1)
		return Settled{}
	case j.cancelled:
		w.remove(v.ID)
		w.count("cancelled", 1)
		w.count("cancelled_processing", 1)
		return Settled{Cancelled: true}
	case v.Op == Release && v.KeepAt != "":
		w.count("released", 1)
		var at int64
		_, err := fmt.Sscan(v.KeepAt, &at)
		require.NoError(w.t, err)
		w.backAt(v.ID, at, at, head)
		return Settled{Place: Due}
	case v.Op == Release:
		w.count("released", 1)
		w.back(v.ID, v.Delay.Milliseconds(), head)
		return Settled{Place: Due}
	}
	j.failures++
	j.lines = min(5, j.lines+1)
	w.count(map[Op]string{Nack: "nacked", Bury: "buried"}[v.Op], 1)
	most := w.retries
	if j.retries != nil {
		most = *j.retries
	}
	if v.Op == Nack && j.failures <= most {
		w.back(v.ID, v.Delay.Milliseconds(), head)
		return Settled{Place: Due}
	}
	w.die(v.ID)
	return Settled{Place: Dead}
}

func (w *world) die(id string) {
	from, to := w.at(0)
	w.move(id, Dead, from, to)
	w.count("died", 1)
}

func (w *world) extend() {
	var leases []Held
	for range draw(w, aFew, "leases") {
		leases = append(leases, held(w.lease()))
	}
	length := draw(w, rapid.SampledFrom([]time.Duration{0, time.Second, time.Hour}), "length")
	var got Extended
	w.run(func() (err error) { got, err = w.b.Extend(w.ctx, length, leases); return err })
	from, to := w.at(got.Length.Milliseconds())
	for i, one := range leases {
		j := w.jobs[one.ID]
		switch {
		case j == nil || j.token != one.Token:
			require.Equal(w.t, refusal(one.ID, w.place(one.ID)), got.Results[i])
			w.count("refused_extends", 1)
		case j.cancelled:
			require.Equal(w.t, ErrCancelled, got.Results[i])
		default:
			require.NoError(w.t, got.Results[i])
			j.from, j.to = max(j.from, from), max(j.to, to)
		}
	}
}

// expire has some leases run out, and sweeps.
func (w *world) expire() {
	for _, id := range w.in(Processing) {
		j := w.jobs[id]
		if w.unseen[j.token] || !draw(w, rapid.Bool(), "runs out") {
			continue
		}
		j.from = int64(draw(w, aFew, "expiry"))
		j.to, j.score = j.from, j.from
		require.NoError(w.t, w.b.rdb.ZAdd(w.ctx, w.b.key("processing"), redis.Z{Score: float64(j.score), Member: id}).Err())
	}
	n := draw(w, aFew, "n")
	var got Expired
	w.run(func() (err error) { got, err = w.b.Expire(w.ctx, n, true); return err })
	want, head := Expired{NextExpiry: got.NextExpiry, Lease: DefaultLease}, w.head()
	for _, id := range w.upTo(Processing, w.now(), n) {
		j := w.jobs[id]
		if j.cancelled {
			want.Cancelled++
			w.remove(id)
			w.count("cancelled", 1)
			w.count("cancelled_processing", 1)
			continue
		}
		w.count("expired", 1)
		j.expiries++
		most := w.most
		if j.most != nil {
			most = *j.most
		}
		if j.expiries > most {
			want.ToDead++
			j.lines = min(5, j.lines+1)
			w.die(id)
		} else {
			want.ToDue++
			w.back(id, 0, head)
		}
	}
	want.More = len(w.upTo(Processing, w.now(), 1)) > 0
	require.Equal(w.t, want, got)
}

func (w *world) cancel() {
	ids := draw(w, someIDs, "ids")
	var got []Removed
	w.run(func() (err error) { got, err = w.b.Cancel(w.ctx, ids); return err })
	for i, id := range ids {
		switch w.place(id) {
		case Nowhere:
			require.Equal(w.t, Removed{Err: ErrGone}, got[i])
		case Processing:
			require.Equal(w.t, Removed{Cancelling: true}, got[i])
			w.jobs[id].cancelled = true
		default:
			require.Equal(w.t, Removed{Cancelled: true}, got[i])
			w.remove(id)
			w.count("cancelled", 1)
		}
	}
}

func (w *world) redrive() {
	n, ids := draw(w, aFew, "n"), draw(w, someIDs, "ids")
	if draw(w, rapid.Bool(), "by cursor") {
		var cursor Cursor
		moved := 0
		w.run(func() (err error) { moved, err = w.b.RedriveNext(w.ctx, &cursor, n); return err })
		ids = w.upTo(Dead, w.to/1000, n)
		require.Equal(w.t, len(ids), moved)
		for _, id := range ids {
			w.redriven(id)
		}
		require.Equal(w.t, len(w.in(Dead)) == 0, cursor.Done)
		return
	}
	var got []error
	w.run(func() (err error) { got, err = w.b.Redrive(w.ctx, ids); return err })
	for i, id := range ids {
		if place := w.place(id); place != Dead {
			require.Equal(w.t, refusal(id, place), got[i])
			continue
		}
		require.NoError(w.t, got[i])
		w.redriven(id)
	}
}

func (w *world) redriven(id string) {
	j := w.jobs[id]
	j.failures, j.expiries, j.redrives = 0, 0, j.redrives+1
	w.count("redriven", 1)
	w.wake = true
	w.back(id, 0, -1)
}

func (w *world) purge() {
	place, n, ids := draw(w, rapid.SampledFrom([]Place{Due, Dead}), "place"), draw(w, aFew, "n"), draw(w, someIDs, "ids")
	if draw(w, rapid.Bool(), "by cursor") {
		gone := 0
		w.run(func() (err error) { gone, err = w.b.PurgeNext(w.ctx, place, &Cursor{}, n); return err })
		ids = w.upTo(place, w.to/1000, n)
		require.Equal(w.t, len(ids), gone)
	} else {
		var got []error
		w.run(func() (err error) { got, err = w.b.Purge(w.ctx, place, ids); return err })
		seen := map[string]bool{}
		for i, id := range ids {
			require.Equal(w.t, w.place(id) == place && !seen[id], got[i] == nil)
			seen[id] = true
		}
	}
	for _, id := range ids {
		if w.place(id) == place {
			w.remove(id)
			w.count("purged", 1)
		}
	}
}
