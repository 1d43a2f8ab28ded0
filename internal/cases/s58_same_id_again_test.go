package cases

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/reliable"
)

// sameID is a state that a job X can be in, how it gets there, and what a second enqueue of X then answers. docs/cases.md
// has the same table.
var sameID = []struct {
	state     string
	reach     func(l *lane)
	duplicate reliable.Place // Nowhere: created
}{
	{"due", func(*lane) {}, reliable.Due},
	{"due later", func(l *lane) { l.rescheduleX(time.Hour) }, reliable.Due},
	{"processing", func(l *lane) { l.claimExactly(1) }, reliable.Processing},
	{"processing, lease run out", func(l *lane) { l.claimExactly(1); l.setScores(reliable.Processing, "1", "X") }, reliable.Processing},
	{"processing, cancelled", func(l *lane) { l.claimExactly(1); l.cancelX() }, reliable.Processing},
	{"put back by a nack", func(l *lane) { l.settleX(errors.New("failed")) }, reliable.Due},
	{"dead", func(l *lane) { l.killX() }, reliable.Dead},
	{"dead and redriven", func(l *lane) { l.killX(); l.redriveX() }, reliable.Due},
	{"due and buried by hand", func(l *lane) { l.buryX() }, reliable.Dead},
	{"dead, edited and redriven", func(l *lane) { l.killX(); l.editX("old") }, reliable.Due},
	{"dead, purged and imported again", func(l *lane) { l.killX(); l.importX() }, reliable.Dead},
	{"acked", func(l *lane) { l.settleX(nil) }, reliable.Nowhere},
	{"dead and purged", func(l *lane) { l.killX(); l.purgeX(reliable.Dead) }, reliable.Nowhere},
	{"dead and cancelled", func(l *lane) { l.killX(); l.cancelX() }, reliable.Nowhere},
	{"due and purged", func(l *lane) { l.purgeX(reliable.Due) }, reliable.Nowhere},
	{"due and cancelled", func(l *lane) { l.cancelX() }, reliable.Nowhere},
	{"nowhere, with remains of it in the hashes", func(l *lane) {
		l.purgeX(reliable.Due)
		for _, key := range []string{"jobs", "leases", "counts", "errors"} { // left by a hand, or a half-restored backup
			value := map[string]string{"counts": "7 7 7 1 1 -", "errors": "1\t1\tsomebody\told reason"}[key]
			require.NoError(l.t, l.rdb.HSet(l.t.Context(), l.keys.Key(key), "X", value).Err())
		}
	}, reliable.Nowhere},
	{"cancelled in processing, and its lease ended", func(l *lane) {
		job := l.claimExactly(1)["X"]
		l.cancelX()
		require.NoError(l.t, job.Release(l.t.Context()))
	}, reliable.Nowhere},
}

// settleX claims X and settles it as a handler's return would: acked for nil, else nacked, due again at once.
func (l *lane) settleX(err error) {
	l.t.Helper()
	job := l.claimExactly(1)["X"]
	if err == nil {
		require.NoError(l.t, job.Ack(l.t.Context()))
		return
	}
	require.NoError(l.t, job.Nack(l.t.Context(), reliable.RetryAfter(0, err)))
}

func (l *lane) killX() {
	l.t.Helper()
	l.settleX(errors.New("first"))
	require.NoError(l.t, l.claimExactly(1)["X"].Bury(l.t.Context(), errors.New("no use")))
	require.Equal(l.t, reliable.Dead, l.inspect("X").Place)
}

func (l *lane) redriveX() {
	l.t.Helper()
	results, err := l.queue.Redrive(l.t.Context(), "X")
	require.NoError(l.t, errors.Join(err, results[0]))
}

func (l *lane) purgeX(place reliable.Place) {
	l.t.Helper()
	results, err := l.queue.Purge(l.t.Context(), place, "X")
	require.NoError(l.t, errors.Join(err, results[0]))
}

func (l *lane) cancelX() {
	l.t.Helper()
	removed, err := l.queue.Cancel(l.t.Context(), "X")
	require.NoError(l.t, errors.Join(err, removed[0].Err))
}

func (l *lane) rescheduleX(delay time.Duration) {
	l.t.Helper()
	results, err := l.queue.Reschedule(l.t.Context(), delay, "X")
	require.NoError(l.t, errors.Join(err, results[0]))
}

func (l *lane) buryX() {
	l.t.Helper()
	results, err := l.queue.Bury(l.t.Context(), "by hand", "X")
	require.NoError(l.t, errors.Join(err, results[0]))
}

func (l *lane) editX(payload string) {
	l.t.Helper()
	require.NoError(l.t, l.queue.EditAndRedrive(l.t.Context(), "X", reliable.Edit{Payload: []byte(payload)}))
}

func (l *lane) importX() {
	l.t.Helper()
	info := l.inspect("X")
	l.purgeX(reliable.Dead)
	results, err := l.queue.Import(l.t.Context(), []reliable.Info{info})
	require.NoError(l.t, errors.Join(err, results[0]))
}

func TestS58_TheSameIDAgainIsCreatedOrRefusedByWhereTheOldOneIs(t *testing.T) {
	t.Parallel()
	for _, one := range sameID {
		t.Run(one.state, func(t *testing.T) {
			t.Parallel()
			l := newLane(t, &reliable.QueueOptions{MaxRetries: limitOf(5)})
			l.enqueue(reliable.Item{Kind: "old", ID: "X", Payload: []byte("old"), Headers: map[string]string{"v": "old"}})
			one.reach(l)
			before := redistest.Dump(t, l.rdb, "", l.name, "sessions")
			got, err := l.queue.Enqueue(t.Context(), reliable.Item{
				Kind: "new", ID: "X", Payload: []byte("new"), Headers: map[string]string{"v": "new"}, Delay: 30 * time.Minute,
			})
			require.Equal(t, "X", got.ID)
			if one.duplicate == reliable.Nowhere {
				require.NoError(t, err)
				l.xIsNew()
				return
			}
			var duplicate *reliable.DuplicateError
			require.ErrorAs(t, err, &duplicate)
			require.ErrorIs(t, err, reliable.ErrDuplicate)
			require.Equal(t, reliable.DuplicateError{ID: "X", Place: one.duplicate}, *duplicate)
			require.ErrorContains(t, err, string(one.duplicate))
			require.Equal(t, before, redistest.Dump(t, l.rdb, "", l.name, "sessions"), "a refused enqueue has changed something")
			require.Equal(t, "old", string(l.inspect("X").Payload))
		})
	}
}

// Who asks for it is content with the job that is there, or takes its place: no state locks X out, but for as long as
// somebody works on it.
func TestS58_KeepAndReplaceWhereverTheOldOneIs(t *testing.T) {
	t.Parallel()
	for _, one := range sameID {
		t.Run(one.state, func(t *testing.T) {
			t.Parallel()
			l := newLane(t, &reliable.QueueOptions{MaxRetries: limitOf(5)})
			l.enqueue(reliable.Item{Kind: "old", ID: "X", Payload: []byte("old"), Headers: map[string]string{"v": "old"}})
			one.reach(l)
			item := reliable.Item{
				Kind: "new", ID: "X", Payload: []byte("new"), Headers: map[string]string{"v": "new"}, Delay: 30 * time.Minute, OnConflict: reliable.Keep,
			}
			if one.duplicate != reliable.Nowhere {
				before := redistest.Dump(t, l.rdb, "", l.name, "sessions")
				got, err := l.queue.Enqueue(t.Context(), item)
				require.NoError(t, err)
				require.Equal(t, reliable.Enqueued{ID: "X", Found: one.duplicate}, got)
				require.Equal(t, before, redistest.Dump(t, l.rdb, "", l.name, "sessions"), "a keep has changed something")
			}
			item.OnConflict = reliable.Replace
			got, err := l.queue.Enqueue(t.Context(), item)
			if one.duplicate == reliable.Processing {
				require.Equal(t, &reliable.DuplicateError{ID: "X", Place: reliable.Processing}, err)
				require.Equal(t, "old", string(l.inspect("X").Payload))
				return
			}
			require.NoError(t, err)
			require.Equal(t, reliable.Enqueued{ID: "X", Replaced: one.duplicate != reliable.Nowhere}, got)
			l.xIsNew()
		})
	}
}

// xIsNew asserts that X is a new job, with nothing left of the old one.
func (l *lane) xIsNew() {
	l.t.Helper()
	info := l.inspect("X")
	require.Equal(l.t, reliable.Due, info.Place)
	require.Equal(l.t, "new", info.Kind)
	require.Equal(l.t, "new", string(info.Payload))
	require.Equal(l.t, map[string]string{"v": "new"}, info.Headers)
	require.InDelta(l.t, 30*time.Minute, info.In, float64(time.Minute))
	require.Zero(l.t, info.Failures+info.Expiries+info.Redrives)
	require.Empty(l.t, info.Errors)
	require.Empty(l.t, info.Stack)
	require.False(l.t, info.Cancelling)
}

// A periodic producer that is locked out by a dead job can see that, and make way.
func TestS58_ADeadJobCanBeReplacedByCancelAndEnqueue(t *testing.T) {
	t.Parallel()
	l := newLane(t, nil)
	l.enqueue(reliable.Item{Kind: "old", ID: "X", Payload: []byte("old")})
	l.killX()
	item := reliable.Item{Kind: "new", ID: "X", Payload: []byte("new"), Headers: map[string]string{"v": "new"}, Delay: 30 * time.Minute}
	for range 3 {
		_, err := l.queue.Enqueue(t.Context(), item)
		var duplicate *reliable.DuplicateError
		require.ErrorAs(t, err, &duplicate)
		require.Equal(t, reliable.Dead, duplicate.Place)
	}
	l.cancelX()
	l.enqueue(item)
	l.xIsNew()
}

// What is dead can also be given the new payload, and keeps what it is: it stays the same job.
func TestS58_ADeadJobCanBeGivenTheNewPayloadAndRedriven(t *testing.T) {
	t.Parallel()
	l := newLane(t, nil)
	l.enqueue(reliable.Item{Kind: "old", ID: "X", Payload: []byte("old"), Headers: map[string]string{"v": "old"}})
	l.killX()
	before := l.inspect("X")
	l.editX("new")
	info := l.inspect("X")
	require.Equal(t, []any{reliable.Due, "old", "new", before.Headers, before.EnqueuedAt, 1, 0}, []any{
		info.Place, info.Kind, string(info.Payload), info.Headers, info.EnqueuedAt, info.Redrives, info.Failures,
	})
	l.balanced(1)
}

func TestS58_TheSameIDTwiceInOneCallIsCreatedOnce(t *testing.T) {
	t.Parallel()
	l := newLane(t, nil)
	results, err := l.queue.EnqueueMany(t.Context(), []reliable.Item{
		{Kind: "case", ID: "X", Payload: []byte("first"), Delay: time.Hour},
		{Kind: "case", ID: "Y", Payload: []byte("other")},
		{Kind: "case", ID: "X", Payload: []byte("second")},
	})
	require.NoError(t, err)
	require.NoError(t, results[0].Err)
	require.NoError(t, results[1].Err)
	var duplicate *reliable.DuplicateError
	require.ErrorAs(t, results[2].Err, &duplicate)
	require.Equal(t, reliable.Due, duplicate.Place)
	require.Equal(t, "first", string(l.inspect("X").Payload))
	l.balanced(2)
}

// Two producers enqueue the same ID at the same time, again and again: one of them makes the job, with its payload and
// its due time, and the other is told so.
func TestS58_OfTwoConcurrentEnqueuesExactlyOneCreates(t *testing.T) {
	t.Parallel()
	rounds := shape(200, 1000)
	l := newLane(t, nil)
	others := [2]*lane{l, laneOn(t, l.name, redistest.Client(t), nil)}
	wins := [2]int{}
	for round := range rounds {
		id := strconv.Itoa(round)
		var errs [2]error
		var both sync.WaitGroup
		gate := make(chan struct{})
		for i, one := range others {
			both.Go(func() {
				<-gate
				_, errs[i] = one.queue.Enqueue(context.Background(), twin(id, i))
			})
		}
		close(gate)
		both.Wait()
		winner := 0
		if errs[0] != nil {
			winner = 1
		}
		wins[winner]++
		require.NoError(t, errs[winner])
		var duplicate *reliable.DuplicateError
		require.ErrorAs(t, errs[1-winner], &duplicate)
		require.Equal(t, reliable.Due, duplicate.Place)
		want := twin(id, winner)
		info := l.inspect(id)
		require.Equal(t, want.Kind, info.Kind)
		require.Equal(t, want.Payload, info.Payload)
		require.Equal(t, want.Headers, info.Headers)
		require.InDelta(t, want.Delay, info.In, float64(10*time.Minute))
	}
	t.Logf("%d and %d", wins[0], wins[1])
	require.EqualValues(t, rounds, l.stats().Counters["enqueued"])
	l.balanced(rounds)
}

// twin is what one of two producers makes of an ID: nothing of it is like the other's.
func twin(id string, i int) reliable.Item {
	who := strconv.Itoa(i)
	return reliable.Item{
		Kind: "case." + who, ID: id, Payload: []byte("payload of " + who), Headers: map[string]string{"by": who},
		Delay: time.Duration(i+1) * time.Hour,
	}
}
