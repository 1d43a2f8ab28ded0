package lease

import (
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leaseq/leaseq/internal/model"
)

func (w *world) drawItems() ([]Item, []model.Item) {
	var items []Item
	var same []model.Item
	plain := draw(w, rapid.Bool(), "none has limits of its own") // the script has a shorter way for these
	for range draw(w, aFew, "items") {
		one := model.Item{
			ID: draw(w, anyID, "id"), Size: draw(w, rapid.IntRange(1, 5), "size"), Delay: draw(w, anyDelay, "delay"),
			Headers: draw(w, rapid.IntRange(0, 3), "headers"), Replace: draw(w, rapid.Bool(), "replace"),
			NotAfter:   draw(w, rapid.SampledFrom([]int64{0, 0, 5, 1 << 41}), "not after"),
			MaxRetries: draw(w, anyLimit, "retries"), MaxExpiries: draw(w, anyLimit, "expiries"),
		}
		if plain {
			one.NotAfter, one.MaxRetries, one.MaxExpiries = 0, nil, nil
		}
		one.Record = fmt.Sprintf("%s %0*d", one.ID, one.Size, len(w.known)%10)
		same = append(same, one)
		var deadline time.Time
		if one.NotAfter != 0 {
			deadline = time.UnixMilli(one.NotAfter)
		}
		items = append(items, Item{
			NotAfter: deadline, Replace: one.Replace,
			ID: one.ID, Record: []byte(one.Record), Size: one.Size, HeaderSize: one.Headers, Delay: time.Duration(one.Delay) * time.Millisecond,
			MaxRetries: one.MaxRetries, MaxExpiries: one.MaxExpiries,
		})
	}
	return items, same
}

func (w *world) enqueue() {
	items, same := w.drawItems()
	var results []Made
	store := w.store()
	done := w.call(1, func() (err error) { results, err = store.EnqueueEach(w.ctx, items); return err })
	codes := w.Enqueue(done[0].When, same)
	require.Equal(w.t, codes, done[0].Rest)
	for i := range results {
		want := Made{Replaced: codes[i] == 'p', Err: w.refused(codes[i], items[i].ID, items[i].Size, items[i].HeaderSize, items[i].Delay)}
		require.Equal(w.t, want, results[i])
	}
}

// refused is what a code of an enqueue or an edit means.
func (w *world) refused(code byte, id string, size, headers int, delay time.Duration) error {
	switch code {
	case 'c', 'p', 'o':
		return nil
	case 'n':
		return ErrChanged
	case 't':
		return &TooLargeError{What: "payload", Size: size, Limit: w.Policy.PayloadLimit}
	case 'h':
		return &TooLargeError{What: "headers", Size: headers, Limit: *w.Policy.HeaderLimit}
	case 'l':
		return &DelayTooLongError{ID: id, Asked: delay, Limit: millis(w.Policy.MaxDelay)}
	case 'f':
		return &QueueFullError{Limit: *w.Policy.MaxLength}
	}
	place, _ := placeOf(code)
	return &DuplicateError{ID: id, Place: place}
}

func (w *world) store() *Store { return w.stores[draw(w, rapid.IntRange(0, 1), "store")] }

func (w *world) drawClaim() (int, *ClaimOptions) {
	return draw(w, aFew, "n"), &ClaimOptions{
		Lease: draw(w, rapid.SampledFrom([]time.Duration{0, 0, 0, time.Second, time.Hour}), "lease"),
		Bytes: draw(w, rapid.SampledFrom([]int{0, 0, 1, 10}), "bytes"),
	}
}

func (w *world) claim() {
	n, o := w.drawClaim()
	var got Claimed
	var short error
	store := w.store()
	done := w.call(1, func() (err error) {
		if got, err = store.Claim(w.ctx, n, o); o.Lease == time.Second {
			short, err = err, nil
		}
		return err
	})
	w.claimed(done[0], n, o, got, short, nil)
	w.known = append(w.known, got.Jobs...)
}

// claimed checks what a claim gave out.
func (w *world) claimed(a answered, n int, o *ClaimOptions, got Claimed, short error, unseen []string) {
	var first, count, expiry int64
	_, err := fmt.Sscan(a.Rest, &first, &count, &expiry)
	require.NoError(w.t, err, a.Rest)
	fence := w.Fence
	c := &model.Claim{
		Session: a.session, Number: a.Number, N: n, Lease: ceilMillis(o.Lease), Bytes: o.Bytes, Unseen: unseen,
	}
	if c.Bytes == 0 {
		c.Bytes = MaxBytes
	}
	want := w.Claim(a.When, c, first)
	if want.Short {
		require.Equal(w.t, &ShortLeaseError{Asked: o.Lease, Published: millis(want.Lease)}, short)
		require.Equal(w.t, "0 0 0", a.Rest)
		return
	}
	require.NoError(w.t, short)
	require.Equal(w.t, want.IDs, idsOf(got.Jobs))
	require.Equal(w.t, want.TooLate, idsOf(got.TooLate))
	require.Equal(w.t, want.Held, got.Held)
	require.Equal(w.t, []int64{int64(want.Missing), want.Lease, int64(len(want.IDs))},
		[]int64{int64(got.Missing), got.Length.Milliseconds(), count})
	next := got.NextDue.Milliseconds()
	require.True(w.t, want.NextDue.At <= next && next <= want.NextDue.To, "next due in %d ms, want %v", next, want.NextDue)
	require.Contains(w.t, []int64{a.When + want.Lease, a.When + want.Lease + 1}, expiry)
	if count > 0 {
		require.Greater(w.t, first, w.before)
		require.True(w.t, first/1000 == a.When || first == fence+1, "fence %d after %d, at %d ms", first, fence, a.When)
		require.GreaterOrEqual(w.t, first, 1000*a.When, "no fence is behind the clock")
		if first != fence+1 { // it is the claim's own time, in microseconds
			require.Equal(w.t, (first+999)/1000+want.Lease, expiry, "a lease is rounded up")
		}
	}
	for i, l := range got.Jobs {
		j := w.Jobs[l.ID]
		require.Equal(w.t, j.Record, string(l.Record))
		require.Equal(w.t, []int{j.Failures, j.Expiries, j.Redrives}, []int{l.Failures, l.Expiries, l.Redrives})
		require.Equal(w.t, j.NotAfter != 0, !l.NotAfter.IsZero())
		require.Equal(w.t, []*int{j.MaxRetries, j.MaxExpiries}, []*int{l.MaxRetries, l.MaxExpiries})
		require.Equal(w.t, j.Token, l.Token)
		require.Equal(w.t, want.Dues[i].At, l.Due.UnixMilli())
	}
}

// lease draws one that was ever given out, or one that never was.
func (w *world) lease() Lease {
	if len(w.known) == 0 || draw(w, rapid.IntRange(0, 9), "made up") == 0 {
		return Lease{ID: draw(w, anyID, "id"), Token: "1:nobody:1", due: "5"}
	}
	latest := w.known[max(0, len(w.known)-8):]
	return latest[draw(w, rapid.IntRange(0, len(latest)-1), "lease")]
}

func (w *world) drawVerdicts() ([]Verdict, []model.Verdict) {
	var verdicts []Verdict
	var same []model.Verdict
	ops, plain := []Op{Ack, Nack, Nack, Release, Bury}, draw(w, rapid.IntRange(0, 2), "plain acks") == 0
	if plain { // which have a way of their own through the script
		ops = []Op{Ack}
	}
	for range draw(w, aFew, "verdicts") {
		l := w.lease()
		v := verdict(draw(w, rapid.SampledFrom(ops), "op"), l)
		one := model.Verdict{Op: byte(v.Op), ID: v.ID, Token: v.Token}
		switch v.Op {
		case Ack:
			if !plain {
				one.Result = draw(w, rapid.SampledFrom([]string{"", "result"}), "result")
				v.Result = []byte(one.Result)
			}
		case Nack, Bury:
			one.Reason, one.Stack = "reason", draw(w, rapid.SampledFrom([]string{"", "a\nstack"}), "stack")
		case Release:
			one.Keep, one.Newer = draw(w, rapid.Bool(), "keep"), draw(w, rapid.Bool(), "newer")
		}
		if one.Delay = draw(w, anyDelay, "delay"); one.Keep {
			v.KeepDue(&l)
			_, err := fmt.Sscan(v.KeepAt, &one.KeepAt)
			require.NoError(w.t, err)
		}
		v.Delay, v.Reason, v.Stack, v.Newer = time.Duration(one.Delay)*time.Millisecond, one.Reason, one.Stack, one.Newer
		if !plain {
			v.Attached, one.Attached = w.drawAttached(l)
		}
		verdicts, same = append(verdicts, v), append(same, one)
	}
	return verdicts, same
}

func (w *world) settle() {
	verdicts, same := w.drawVerdicts()
	var got []Settled
	store := w.store()
	done := w.call(1, func() (err error) { got, err = store.Settle(w.ctx, verdicts); return err })
	w.settled(done[0], verdicts, same, got)
}

func (w *world) settled(a answered, verdicts []Verdict, same []model.Verdict, got []Settled) {
	codes := w.Settle(a.When, same)
	require.Equal(w.t, codes, a.Rest)
	for i, code := range codes {
		want := map[rune]Settled{'o': {}, 'd': {Place: Due}, 'x': {Place: Dead}, 'c': {Cancelled: true}}[code]
		switch {
		case code >= '0' && code <= '4':
			want.Err = refusal(verdicts[i].ID, byte(code))
		case code == 'r':
			want.Err = &RecordError{ID: verdicts[i].ID, Key: verdicts[i].Attached.Key}
		}
		require.Equal(w.t, want, got[i])
	}
}

func refusal(id string, code byte) error {
	place, _ := placeOf(code)
	if place == Nowhere {
		return ErrGone
	}
	return &LostError{ID: id, Place: place}
}

// exchange settles and claims in one round trip.
func (w *world) exchange() {
	verdicts, same := w.drawVerdicts()
	n, o := w.drawClaim()
	var got []Settled
	var jobs Claimed
	var short error
	store := w.store()
	done := w.call(2, func() error {
		var settleErr, claimErr error
		got, settleErr, jobs, claimErr = store.Exchange(w.ctx, verdicts, n, o)
		if o.Lease == time.Second {
			short, claimErr = claimErr, nil
		}
		require.NoError(w.t, claimErr)
		return settleErr
	})
	for _, a := range done {
		if a.claim {
			w.claimed(a, n, o, jobs, short, nil)
		} else {
			w.settled(a, verdicts, same, got)
		}
	}
	w.known = append(w.known, jobs.Jobs...)
}

func (w *world) extend() {
	var leases []Held
	var same []model.Held
	for range draw(w, aFew, "leases") {
		l := w.lease()
		one, alike := held(l), model.Held{ID: l.ID, Token: l.Token}
		if one.Attached, alike.Attached = w.drawAttached(l); one.Attached != nil && draw(w, rapid.Bool(), "expiry") {
			one.Attached.Expiry, alike.Attached.Expiry = "expiry", "expiry"
		}
		leases, same = append(leases, one), append(same, alike)
	}
	length := draw(w, rapid.SampledFrom([]time.Duration{0, time.Second, time.Hour}), "length")
	from := w.time()
	got, err := w.stores[0].Extend(w.ctx, length, leases)
	require.NoError(w.t, err)
	codes := w.Extend(from, w.time(), length.Milliseconds(), same)
	w.learn()
	for i, code := range codes {
		switch code {
		case 'o':
			require.NoError(w.t, got.Results[i])
		case 'c':
			require.Equal(w.t, ErrCancelled, got.Results[i])
		default:
			require.Equal(w.t, refusal(leases[i].ID, byte(code)), got.Results[i])
		}
	}
}

// time is the server's clock in ms.
func (w *world) time() int64 {
	now, err := w.b.rdb.Time(w.ctx).Result()
	require.NoError(w.t, err)
	return now.UnixMilli()
}

// expire has some leases run out, and sweeps.
func (w *world) expire() {
	for _, id := range w.In(model.Processing) {
		j := w.Jobs[id]
		if w.unseen[j.Token] || !draw(w, rapid.Bool(), "runs out") {
			continue // what nobody has seen yet is never extended, so its expiry is the claim's
		}
		j.Score = model.Exactly(int64(draw(w, aFew, "expiry")))
		require.NoError(w.t, w.b.rdb.ZAdd(w.ctx, w.b.key("processing"), redis.Z{Score: float64(j.Score.At), Member: id}).Err())
	}
	n, noGrace := draw(w, aFew, "n"), draw(w, rapid.Bool(), "no grace")
	if !noGrace {
		w.setSweep()
	}
	got, err := w.stores[0].Expire(w.ctx, n, noGrace)
	require.NoError(w.t, err)
	var now int64
	_, err = fmt.Sscan(w.b.picture(w.ctx, w.t).Hashes["sweep"]["swept"], &now)
	require.NoError(w.t, err)
	want := w.Expire(now, n, noGrace)
	require.Equal(w.t, Expired{
		ToDue: want.ToDue, ToDead: want.ToDead, Cancelled: want.Cancelled, Missing: want.Missing, More: want.More,
		NextExpiry: millis(want.NextExpiry), Grace: millis(want.Grace), Lease: millis(w.Policy.Lease),
	}, got)
}

// setSweep makes the sweep before one of some time ago, with or without a grace left. Half a lease is 7.5 to 10 s here.
func (w *world) setSweep() {
	now, ago := w.time(), rapid.SampledFrom([]int64{0, 5_000, 12_000, hour})
	w.Swept, w.Judged = now-draw(w, ago, "swept ago"), true
	w.Grace = now + draw(w, rapid.SampledFrom([]int64{-5_000, -5_000, 5_000, hour}), "grace left")
	w.Row = draw(w, rapid.IntRange(0, 3), "row")
	require.NoError(w.t, w.b.rdb.HSet(w.ctx, w.b.key("sweep"), "swept", w.Swept, "grace", w.Grace, "row", w.Row).Err())
}
