package reliable

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func nothing(context.Context, *Job) error { return nil }

func TestMuxHandsJobsToTheHandlerOfTheirExactKind(t *testing.T) {
	t.Parallel()
	mux := NewMux()
	var got []string
	require.NoError(t, Handle(mux, func(_ context.Context, job *Job, o closeOrder) error {
		got = append(got, job.ID+" "+o.ID)
		return nil
	}, nil))
	require.NoError(t, Handle(mux, func(_ context.Context, job *Job, r *refund) error {
		got = append(got, fmt.Sprint(job.ID, " ", r.Amount))
		return errCard
	}, &HandleOptions{}))
	require.NoError(t, mux.HandleFunc("order", func(_ context.Context, job *Job) error {
		got = append(got, job.ID+" "+string(job.Payload))
		return Discard(nil)
	}, nil))

	require.NoError(t, mux.Handle(t.Context(), &Job{ID: "1", Kind: "order.close", Payload: []byte(`{"ID":"10086"}`)}))
	require.Equal(t, errCard, mux.Handle(t.Context(), &Job{ID: "2", Kind: "refund", Payload: []byte(`{"Amount":7}`)}))
	require.Equal(t, opBury, verdictOf(mux.Handle(t.Context(), &Job{ID: "3", Kind: "order", Payload: []byte("\xff")})).op)
	require.Equal(t, []string{"1 10086", "2 7", "3 \xff"}, got)
	require.Equal(t, []string{"order", "order.close", "refund"}, mux.Kinds())
}

func TestMuxAnswersNoHandlerForEveryOtherKind(t *testing.T) {
	t.Parallel()
	mux := NewMux()
	require.Empty(t, mux.Kinds())
	require.NoError(t, mux.HandleFunc("order.close", nothing, nil))
	for _, kind := range []string{"", "order", "order.close.v2", "Order.close", "order.clos"} {
		err := mux.Handle(t.Context(), &Job{Kind: kind})
		require.ErrorIs(t, err, ErrNoHandler)
		require.Equal(t, fmt.Sprintf("no handler for kind %q", kind), err.Error())
		require.True(t, saysNoHandler(err))
		require.Equal(t, opNack, verdictOf(err).op)
	}
}

func TestABadPayloadNeverReachesTheHandler(t *testing.T) {
	t.Parallel()
	mux := NewMux()
	calls := 0
	require.NoError(t, Handle(mux, func(context.Context, *Job, closeOrder) error { calls++; return nil }, nil))
	job := &Job{Kind: "order.close", Payload: []byte(`{"ID":5}`)}
	err := mux.Handle(t.Context(), job)
	var bad *BadPayloadError
	require.ErrorAs(t, err, &bad)
	require.Equal(t, "order.close", bad.Kind)
	require.Zero(t, calls)
	require.Equal(t, `{"ID":5}`, string(job.Payload), "the payload is left as it was")
}

func TestMuxRefusesASecondHandlerForAKind(t *testing.T) {
	t.Parallel()
	mux := NewMux()
	first := errors.New("first")
	require.NoError(t, Handle(mux, func(context.Context, *Job, closeOrder) error { return first }, nil))
	typed := Handle(mux, func(context.Context, *Job, *closeOrder) error { return nil }, nil)
	require.EqualError(t, typed, `reliable.Handle: kind "order.close" has a handler already: want one handler a kind`)
	untyped := mux.HandleFunc("order.close", nothing, nil)
	require.EqualError(t, untyped, `reliable.Mux.HandleFunc: kind "order.close" has a handler already: want one handler a kind`)
	require.Equal(t, first, mux.Handle(t.Context(), &Job{Kind: "order.close", Payload: []byte("{}")}))
}

func TestMuxReportsEverythingThatIsWrong(t *testing.T) {
	t.Parallel()
	err := Handle[spaced](nil, nil, &HandleOptions{Timeout: -1})
	for _, want := range []string{"mux is nil", "fn is nil", `kind "not a kind"`, "Timeout is -1ns: want more than 0"} {
		require.ErrorContains(t, err, want)
	}
	mux := NewMux()
	err = mux.HandleFunc("", nil, &HandleOptions{Timeout: -time.Second})
	for _, want := range []string{"fn is nil", "kind is empty", "Timeout is -1s"} {
		require.ErrorContains(t, err, want)
	}
	require.Empty(t, mux.Kinds())
}

func TestTheZeroMuxIsReady(t *testing.T) {
	t.Parallel()
	var mux Mux
	require.ErrorIs(t, mux.Handle(t.Context(), &Job{Kind: "a"}), ErrNoHandler)
	require.Empty(t, mux.Kinds())
	require.NoError(t, mux.HandleFunc("a", nothing, nil))
	require.NoError(t, mux.Handle(t.Context(), &Job{Kind: "a"}))
}

func TestTimeoutOfAKindEndsTheContextWithItsCause(t *testing.T) {
	t.Parallel()
	mux := NewMux()
	wait := func(ctx context.Context, _ *Job) error {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	require.NoError(t, mux.HandleFunc("short", wait, &HandleOptions{Timeout: time.Millisecond}))
	require.NoError(t, mux.HandleFunc("long", wait, &HandleOptions{Timeout: time.Hour}))
	require.NoError(t, mux.HandleFunc("none", func(ctx context.Context, _ *Job) error {
		_, has := ctx.Deadline()
		require.False(t, has)
		return nil
	}, nil))
	require.Equal(t, ErrJobTimeout, mux.Handle(t.Context(), &Job{Kind: "short"}))
	require.NoError(t, mux.Handle(t.Context(), &Job{Kind: "none"}))
	require.Equal(t, time.Millisecond, mux.timeoutFor("short"))
	require.Zero(t, mux.timeoutFor("none"))
	require.Zero(t, mux.timeoutFor("unknown"))

	errSooner := errors.New("sooner")
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Millisecond, errSooner)
	defer cancel()
	require.Equal(t, errSooner, mux.Handle(ctx, &Job{Kind: "long"}), "a sooner deadline stays")
}

func TestHandlersCanBeAddedWhileJobsRun(t *testing.T) {
	t.Parallel()
	mux := NewMux()
	require.NoError(t, mux.HandleFunc("k0", nothing, nil))
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for n := range 100 {
				if err := mux.HandleFunc(fmt.Sprintf("g%d.%d", g, n), nothing, nil); err != nil {
					t.Errorf("adding: %v", err)
				}
				if err := mux.Handle(t.Context(), &Job{Kind: "k0"}); err != nil {
					t.Errorf("handling: %v", err)
				}
				_ = mux.Kinds()
			}
		})
	}
	wg.Wait()
	require.Len(t, mux.Kinds(), 401)
}
