package lease

import (
	"fmt"
	"strconv"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leaseq/leaseq/internal/model"
)

// eachOf checks the codes of a call by ID against its answers.
func (w *world) eachOf(want string, a answered, ids []string, got []error, own map[byte]error) {
	require.Equal(w.t, want, a.Rest)
	for i, id := range ids {
		switch code := want[i]; {
		case code == 'o' || code == 'c':
			require.NoError(w.t, got[i])
		case own[code] != nil:
			require.Equal(w.t, own[code], got[i])
		default:
			require.Equal(w.t, refusal(id, code), got[i])
		}
	}
}

// reschedule gives one time to all; or it promotes.
func (w *world) reschedule() {
	ids, store := draw(w, someIDs, "ids"), w.store()
	when := "now"
	call, delay := store.Promote, int64(0)
	if !draw(w, rapid.Bool(), "promote") {
		delay = draw(w, anyDelay, "delay")
		when = strconv.FormatInt(delay, 10)
		call = func(ctx ctxt, ids []string) ([]error, error) {
			return store.Reschedule(ctx, time.Duration(delay)*time.Millisecond, ids)
		}
	}
	whens := make([]string, len(ids))
	for i := range whens {
		whens[i] = when
	}
	var got []error
	done := w.call(1, func() (err error) { got, err = call(w.ctx, ids); return err })
	want := w.Reschedule(done[0].When, ids, whens)
	require.Equal(w.t, want, done[0].Rest)
	for i, id := range ids {
		tooLong := &DelayTooLongError{ID: id, Asked: millis(delay), Limit: millis(w.Policy.MaxDelay)}
		w.eachOf(want[i:i+1], answered{Session: model.Session{Rest: done[0].Rest[i : i+1]}}, []string{id}, got[i:i+1], map[byte]error{'l': tooLong})
	}
}

func (w *world) buryByID() {
	ids, store := draw(w, someIDs, "ids"), w.store()
	var got []error
	done := w.call(1, func() (err error) { got, err = store.Bury(w.ctx, "by hand", ids); return err })
	want := w.BuryByID(done[0].When, w.Holders[done[0].session], ClassByHand.with("by hand"), ids)
	w.eachOf(want, done[0], ids, got, nil)
}

func (w *world) edit() {
	redrive, store := draw(w, rapid.Bool(), "redrive"), w.store()
	var ids []string
	var edits []Edit
	var same []model.Edit
	for _, id := range draw(w, someIDs, "ids") {
		one := model.Edit{ID: id, Size: draw(w, rapid.IntRange(1, 5), "size"), Headers: draw(w, rapid.IntRange(0, 3), "headers")}
		one.Record = fmt.Sprintf("%s edited %0*d", id, one.Size, len(w.known)%10)
		if j := w.Jobs[id]; j != nil && draw(w, rapid.Bool(), "seen") {
			one.Old = j.Record
		} else if draw(w, rapid.IntRange(0, 3), "seen long ago") == 0 {
			one.Old = "another"
		}
		edits = append(edits, Edit{ID: id, Record: []byte(one.Record), Size: one.Size, HeaderSize: one.Headers, Old: []byte(one.Old)})
		ids, same = append(ids, id), append(same, one)
	}
	var got []error
	done := w.call(1, func() (err error) {
		if redrive {
			got, err = store.EditAndRedrive(w.ctx, edits)
		} else {
			got, err = store.Edit(w.ctx, edits)
		}
		return err
	})
	want := w.Edit(done[0].When, redrive, same)
	require.Equal(w.t, want, done[0].Rest)
	for i, id := range ids {
		own := map[byte]error{}
		if code := want[i]; code == 'n' || code == 't' || code == 'h' {
			own[code] = w.refused(code, id, edits[i].Size, edits[i].HeaderSize, 0)
		}
		w.eachOf(want[i:i+1], answered{Session: model.Session{Rest: done[0].Rest[i : i+1]}}, []string{id}, got[i:i+1], own)
	}
}

func (w *world) imports() {
	var ids []string
	var kept []Kept
	var same []model.Job
	now := w.time()
	for _, id := range draw(w, someIDs, "ids") {
		at := now + draw(w, rapid.SampledFrom([]int64{-hour, -1, hour, 2 * hour}), "at")
		j := model.Job{
			Place: draw(w, rapid.SampledFrom([]string{model.Due, model.Dead}), "place"), Score: model.Exactly(at), Record: "imported " + id,
			Failures: draw(w, rapid.IntRange(0, 2), "failures"), Redrives: draw(w, rapid.IntRange(0, 2), "redrives"),
			MaxRetries: draw(w, anyLimit, "retries"), MaxExpiries: draw(w, anyLimit, "expiries"),
		}
		k := Kept{
			ID: id, Place: Place(j.Place), At: time.UnixMilli(at), Record: []byte(j.Record),
			Failures: j.Failures, Redrives: j.Redrives, MaxRetries: j.MaxRetries, MaxExpiries: j.MaxExpiries,
		}
		if draw(w, rapid.Bool(), "failed") {
			k.Errors = []Failure{{At: time.UnixMilli(5), Attempt: 1, Holder: "old/1", Reason: "why", Class: ClassDiscarded}}
			k.Stack = draw(w, rapid.SampledFrom([]string{"", "a\nstack"}), "stack")
			j.Errors, j.Stack = []string{"5\t1\told/1\twhy\tdiscarded"}, k.Stack
		}
		ids, kept, same = append(ids, id), append(kept, k), append(same, j)
	}
	var got []error
	done := w.call(1, func() (err error) { got, err = w.stores[0].Import(w.ctx, kept); return err })
	want := w.Import(done[0].When, ids, same)
	for i, id := range ids {
		place, _ := placeOf(want[i])
		w.eachOf(want[i:i+1], answered{Session: model.Session{Rest: done[0].Rest[i : i+1]}}, []string{id}, got[i:i+1],
			map[byte]error{want[i]: &DuplicateError{ID: id, Place: place}})
	}
}
