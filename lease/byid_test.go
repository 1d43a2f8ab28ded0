package lease

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// ofEach is what a call for jobs in due answers of one job in each place, of the same one again, and of none.
func ofEach(again error) []error {
	return []error{
		nil, &LostError{ID: "processing", Place: Processing}, &LostError{ID: "dead", Place: Dead}, &LostError{ID: "done", Place: Done},
		ErrGone, again,
	}
}

var oneOfEach = []string{"due", "processing", "dead", "done", "nowhere", "due"}

func TestRescheduleMovesWhatIsDueAndTellsWhereTheOthersAre(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.spread(t)
		before := b.dump(t)
		got, err := b.Reschedule(t.Context(), 90*time.Minute, oneOfEach)
		require.NoError(t, err)
		assert.Equal(t, ofEach(nil), got)
		assert.InDelta(t, 90*time.Minute, b.look(t, "due").In, float64(10*time.Second))
		assert.Equal(t, 2, b.count(t, "rescheduled"))
		after := b.dump(t)
		for name := range after {
			if !strings.HasSuffix(name, ":due") {
				assert.Equal(t, before[name], after[name], name)
			}
		}
		_, err = b.Reschedule(t.Context(), -1, []string{"due"})
		assert.Error(t, err)
		_, err = b.Reschedule(t.Context(), 0, nil)
		assert.ErrorAs(t, err, new(*BatchError))
	})
}

func TestADelayIsRoundedUpAndNoneIsNow(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.putItems(t, Item{ID: "a", Record: record("a"), Delay: time.Hour})
		before := b.now(t).Truncate(time.Millisecond)
		_, err := b.Reschedule(t.Context(), 1500*time.Microsecond, []string{"a"})
		require.NoError(t, err)
		assert.GreaterOrEqual(t, b.score(t, Due, "a"), before.UnixMilli()+2)
		_, err = b.Reschedule(t.Context(), 0, []string{"a"})
		require.NoError(t, err)
		assert.LessOrEqual(t, b.score(t, Due, "a"), b.now(t).UnixMilli())
		b.take(t, 1)
	})
}

func TestPromoteMakesClaimableAndKeepsThePlaceOfWhatIsAlready(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.putItems(t, Item{ID: "later", Record: record("later"), Delay: time.Hour}, Item{ID: "old", Record: record("old"), At: time.UnixMilli(7)})
		require.NoError(t, b.rdb.ZAdd(t.Context(), b.key("due"), redis.Z{Score: math.Inf(1), Member: "never"}).Err())
		require.NoError(t, b.rdb.HSet(t.Context(), b.key("jobs"), "never", "r").Err())
		got, err := b.Promote(t.Context(), []string{"later", "old", "never", "gone"})
		require.NoError(t, err)
		assert.Equal(t, []error{nil, nil, nil, ErrGone}, got)
		assert.EqualValues(t, 7, b.score(t, Due, "old"))
		assert.Equal(t, "old", b.take(t, 3)[0].ID)
	})
}

func TestWhatMakesTheHeadEarlierWakes(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.putItems(t, Item{ID: "first", Record: record("f"), Delay: time.Hour}, Item{ID: "second", Record: record("s"), Delay: 2 * time.Hour})
		for _, one := range []struct {
			id    string
			d     time.Duration
			wakes int64
		}{
			{"second", 3 * time.Hour, 0}, {"first", 2 * time.Hour, 0}, {"second", 90 * time.Minute, 1}, {"second", time.Hour, 1}, {"first", 0, 1},
		} {
			b.wakeUps(t)
			_, err := b.Reschedule(t.Context(), one.d, []string{one.id})
			require.NoError(t, err)
			assert.Equal(t, one.wakes, b.wakeUps(t), "%s to %v", one.id, one.d)
		}
		_, err := b.Promote(t.Context(), []string{"second", "second"})
		require.NoError(t, err)
		assert.EqualValues(t, 1, b.wakeUps(t))
		_, err = b.Store.Bury(t.Context(), "why", []string{"second"})
		require.NoError(t, err)
		assert.Zero(t, b.wakeUps(t))
	})
}

func TestBuryByIDCountsNothingAndKeepsTheReasonWithTheHand(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.spread(t)
		dead := &LostError{ID: "due", Place: Dead}
		got, err := b.Store.Bury(t.Context(), "asked for by mail", oneOfEach)
		require.NoError(t, err)
		assert.Equal(t, ofEach(dead), got)
		info := b.look(t, "due")
		assert.Equal(t, Dead, info.Place)
		assert.Zero(t, info.Failures+info.Expiries)
		assert.LessOrEqual(t, info.In, time.Duration(0), "it died now, not at its due time")
		info.Errors[0].At = time.Time{}
		assert.Equal(t, []Failure{{Holder: "test/1", Reason: "asked for by mail", Class: ClassByHand}}, info.Errors)
		assert.Equal(t, []int{1, 2, 1}, []int{b.count(t, "buried_by_hand"), b.count(t, "died"), b.count(t, "buried")})

		b.put(t, "bare")
		require.NoError(t, b.rdb.HDel(t.Context(), b.key("jobs"), "bare").Err())
		_, err = b.Store.Bury(t.Context(), "", []string{"bare"})
		require.NoError(t, err)
		assert.Equal(t, "stub", string(b.look(t, "bare").Record))
		assert.Equal(t, 1, b.count(t, "missing"))
		for _, reason := range []string{"two\nlines", "a\ttab", "\xff", strings.Repeat("x", maxReason+1)} {
			_, err := b.Store.Bury(t.Context(), reason, []string{"bare"})
			assert.Error(t, err, reason)
		}
	})
}

func TestEditWritesRecordsWholeAndOnlyOverTheOneThatWasSeen(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.spread(t)
		b.publish(t, Policy{PayloadLimit: 10})
		edit := func(id, old, record string) Edit {
			return Edit{ID: id, Old: []byte(old), Record: []byte(record), Size: len(record)}
		}
		got, err := b.Edit(t.Context(), []Edit{
			edit("due", "", "one"), edit("due", "one", "two"), edit("due", "one", "three"), edit("dead", "record of dead", "new"),
			edit("processing", "", "x"), edit("done", "", "x"), edit("nowhere", "", "x"), edit("due", "two", "eleven byte"),
		})
		require.NoError(t, err)
		assert.Equal(t, []error{
			nil, nil, ErrChanged, nil, &LostError{ID: "processing", Place: Processing}, &LostError{ID: "done", Place: Done}, ErrGone,
			&TooLargeError{What: "payload", Size: 11, Limit: 10},
		}, got)
		assert.Equal(t, "two", string(b.look(t, "due").Record))
		dead := b.look(t, "dead")
		assert.Equal(t, []any{"new", Dead, 1}, []any{string(dead.Record), dead.Place, dead.Failures})
		assert.Equal(t, 3, b.count(t, "edited"))
		for _, bad := range [][]Edit{nil, {{ID: "due"}}, {{Record: []byte("r")}}, {
			{ID: "a", Record: make([]byte, MaxBytes)}, {ID: "b", Record: []byte("r")},
		}} {
			_, err := b.Edit(t.Context(), bad)
			assert.Error(t, err)
		}
	})
}

func TestEditAndRedriveIsBothInOneStep(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.spread(t)
		b.bury(t, "own")
		b.wakeUps(t)
		got, err := b.EditAndRedrive(t.Context(), []Edit{
			{ID: "own", Old: record("own"), Record: []byte("new")}, {ID: "own", Record: []byte("newer")}, {ID: "due", Record: []byte("x")},
			{ID: "dead", Old: []byte("something else"), Record: []byte("x")}, {ID: "nowhere", Record: []byte("x")},
		})
		require.NoError(t, err)
		assert.Equal(t, []error{nil, &LostError{ID: "own", Place: Due}, &LostError{ID: "due", Place: Due}, ErrChanged, ErrGone}, got)
		assert.EqualValues(t, 1, b.wakeUps(t))
		info := b.look(t, "own")
		assert.Equal(t, []any{Due, "new", 0, 1, 1}, []any{info.Place, string(info.Record), info.Failures, info.Redrives, *info.MaxRetries})
		assert.Len(t, info.Errors, 1, "last errors are kept")
		assert.Equal(t, "new", string(b.take(t, 1)[0].Record))
	})
}

func TestImportPutsJobsBackAsTheyWere(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.bury(t, "dead")
		_, err := b.Redrive(t.Context(), []string{"dead"})
		require.NoError(t, err)
		b.settle(t, Verdict{Op: Bury, ID: "dead", Token: b.take(t, 1)[0].Token, Reason: "again", Class: ClassBadPayload, Stack: "a\n\nstack"})
		b.putItems(t, Item{ID: "due", Record: record("due"), Delay: time.Hour, MaxExpiries: ptr(0)})
		before := b.dump(t)
		infos, err := b.Inspect(t.Context(), []string{"dead", "due"})
		require.NoError(t, err)
		kept := []Kept{infos[0].Kept(), infos[1].Kept(), infos[0].Kept()}
		again, err := b.Import(t.Context(), kept)
		require.NoError(t, err)
		assert.Equal(t, []error{&DuplicateError{ID: "dead", Place: Dead}, &DuplicateError{ID: "due", Place: Due}, &DuplicateError{ID: "dead", Place: Dead}}, again)
		assert.Equal(t, before, b.dump(t), "duplicates are left as they are")

		_, err = b.Cancel(t.Context(), []string{"dead", "due"})
		require.NoError(t, err)
		got, err := b.Import(t.Context(), kept)
		require.NoError(t, err)
		assert.Equal(t, []error{nil, nil, &DuplicateError{ID: "dead", Place: Dead}}, got)
		assert.Equal(t, before, b.dump(t), "to the byte")
		assert.Equal(t, 2, b.count(t, "imported"))

		_, err = b.Import(t.Context(), []Kept{{ID: "future", Place: Dead, At: time.Now().Add(time.Hour), Record: []byte("r")}})
		require.NoError(t, err)
		assert.LessOrEqual(t, b.look(t, "future").In, time.Duration(0), "what is dead has died already")
		good := Kept{ID: "x", Place: Dead, At: time.UnixMilli(1), Record: []byte("r")}
		for name, spoil := range map[string]func(k *Kept){
			"no ID": func(k *Kept) { k.ID = "" }, "no record": func(k *Kept) { k.Record = nil }, "place": func(k *Kept) { k.Place = Processing },
			"no time": func(k *Kept) { k.At = time.Time{} }, "counter": func(k *Kept) { k.Expiries = -1 }, "limit": func(k *Kept) { k.MaxRetries = ptr(-1) },
			"errors": func(k *Kept) { k.Errors = make([]Failure, 6) }, "stack": func(k *Kept) { k.Stack = "alone" },
			"reason": func(k *Kept) { k.Errors = []Failure{{Reason: "two\nlines"}} }, "class": func(k *Kept) { k.Errors = []Failure{{Class: "odd"}} },
		} {
			bad := good
			spoil(&bad)
			_, err := b.Import(t.Context(), []Kept{good, bad})
			assert.Error(t, err, name)
		}
		assert.Equal(t, Nowhere, b.look(t, "x").Place, "a mistake in one stops all before anything is sent")
	})
}

func TestAClassIsStoredBehindTheReasonAndReadBack(t *testing.T) {
	t.Parallel()
	for _, class := range append(Classes(), ClassUnknown) {
		reason, got := cutClass(class.with("a reason"))
		assert.Equal(t, []any{"a reason", class}, []any{reason, got})
	}
	reason, class := cutClass("a reason\tof somebody's own")
	assert.Equal(t, []any{"a reason\tof somebody's own", ClassUnknown}, []any{reason, class})
	b := onRedis(t)
	b.put(t, "a")
	_, err := b.Settle(t.Context(), []Verdict{{Op: Bury, ID: "a", Token: b.take(t, 1)[0].Token, Class: "odd"}})
	assert.Error(t, err)
}
