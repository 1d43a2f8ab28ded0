package reliable

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type line struct{ N int }

func (line) Kind() string { return "line" }

type lineBatch = func(ctx context.Context, jobs []*Job, payloads []line) []error

func batchMux(t *testing.T, n int, fn lineBatch, o *BatchOptions) *Mux {
	t.Helper()
	mux := NewMux()
	require.NoError(t, HandleBatch(mux, n, fn, o))
	return mux
}

func lineJob(n int) *Job {
	return &Job{ID: fmt.Sprint(n), Kind: "line", Payload: fmt.Appendf(nil, `{"N":%d}`, n)}
}

// handleAll handles n jobs at once, and returns what each returned.
func handleAll(ctx context.Context, mux *Mux, n int) []error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			errs[i] = exited()
			errs[i] = mux.Handle(ctx, lineJob(i))
		})
	}
	all.Wait()
	return errs
}

var errLine = errors.New("line")

func TestEachJobOfABatchGetsItsOwnError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64 // batches run side by side
		mux := batchMux(t, 10, func(_ context.Context, jobs []*Job, payloads []line) []error {
			calls.Add(1)
			errs := make([]error, len(jobs))
			for i, p := range payloads {
				assert.Equal(t, fmt.Sprint(p.N), jobs[i].ID)
				if p.N%2 == 1 {
					errs[i] = fmt.Errorf("%w %d", errLine, p.N)
				}
			}
			return errs
		}, nil)
		began := time.Now()
		for i, err := range handleAll(t.Context(), mux, 10) {
			if i%2 == 1 {
				assert.EqualError(t, err, fmt.Sprintf("line %d", i))
			} else {
				assert.NoError(t, err)
			}
		}
		assert.EqualValues(t, 1, calls.Load())
		assert.Zero(t, time.Since(began), "a full batch does not wait")
		assert.Len(t, handleAll(t.Context(), mux, 25), 25)
		assert.EqualValues(t, 4, calls.Load(), "two full ones, and what is left")
		assert.Equal(t, DefaultBatchWait, time.Since(began))
	})
}

func TestABatchThatIsNotFullBeginsWhenItsFirstJobHasWaited(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mux := batchMux(t, 10, func(context.Context, []*Job, []line) []error { return nil }, &BatchOptions{Wait: time.Second})
		began := time.Now()
		go func() {
			time.Sleep(time.Second - 1)
			_ = mux.Handle(context.Background(), lineJob(2))
			assert.Equal(t, time.Second, time.Since(began))
		}()
		require.NoError(t, mux.Handle(t.Context(), lineJob(1)))
		require.Equal(t, time.Second, time.Since(began))
		synctest.Wait()
	})
}

func TestWhatGoesWrongWithABatchFailsAllOfIt(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		fn   lineBatch
		want string
	}{
		"too few errors": {func(context.Context, []*Job, []line) []error { return make([]error, 2) }, "returned 2 errors for 3 jobs: want one for each, or nil"},
		"a panic":        {func(context.Context, []*Job, []line) []error { panic("oh") }, "panic: oh"},
		"a Goexit":       {func(context.Context, []*Job, []line) []error { runtime.Goexit(); return nil }, "runtime.Goexit"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, err := range handleAll(t.Context(), batchMux(t, 3, test.fn, &BatchOptions{Wait: time.Minute}), 3) {
				require.ErrorContains(t, err, test.want)
			}
		})
	}
}

func TestAJobThatWasOverWhileItWaitedIsNotInTheBatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var in []string
		mux := batchMux(t, 10, func(_ context.Context, jobs []*Job, _ []line) []error {
			for _, j := range jobs {
				in = append(in, j.ID)
			}
			return nil
		}, &BatchOptions{Wait: time.Second})
		ended, end := context.WithCancelCause(t.Context())
		var lost, kept error
		go func() { kept = mux.Handle(context.Background(), lineJob(1)) }()
		synctest.Wait()
		go func() { lost = mux.Handle(ended, lineJob(2)) }()
		synctest.Wait()
		end(errLine)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		assert.NoError(t, kept)
		assert.Equal(t, errLine, lost)
		assert.Equal(t, []string{"1"}, in)
		assert.ErrorIs(t, mux.Handle(ended, lineJob(3)), errLine, "and there is no batch of none")
		assert.Equal(t, []string{"1"}, in)
	})
}

func TestTheContextOfABatchEndsWithThatOfItsLastJob(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		started := make(chan context.Context, 1)
		mux := batchMux(t, 2, func(ctx context.Context, _ []*Job, _ []line) []error {
			started <- ctx
			<-ctx.Done()
			return []error{context.Cause(ctx), context.Cause(ctx)}
		}, nil)
		one, endOne := context.WithCancelCause(t.Context())
		other, endOther := context.WithCancelCause(t.Context())
		var errs [2]error
		go func() { errs[0] = mux.Handle(one, lineJob(0)) }()
		go func() { errs[1] = mux.Handle(other, lineJob(1)) }()
		ctx := <-started
		endOne(errors.New("not yet"))
		synctest.Wait()
		require.NoError(t, ctx.Err(), "a job is left that it may be done for")
		endOther(errLine)
		synctest.Wait()
		require.Equal(t, [2]error{errLine, errLine}, errs)
	})
}

func TestAPayloadThatDoesNotDecodeIsNotInTheBatch(t *testing.T) {
	t.Parallel()
	mux := batchMux(t, 1, func(context.Context, []*Job, []line) []error { panic("not reached") }, nil)
	job := lineJob(0)
	job.Payload = []byte(`{"N":"?"}`)
	var bad *BadPayloadError
	require.ErrorAs(t, mux.Handle(t.Context(), job), &bad)
}

func TestHandleBatchNamesAllThatIsWrong(t *testing.T) {
	t.Parallel()
	err := HandleBatch[line](nil, 0, nil, &BatchOptions{Wait: -1, Timeout: -1})
	for _, part := range []string{"mux is nil", "fn is nil", "batches of 0 jobs: want 1 to 1000", "Wait is -1ns: want 0 (5ms) to 1m0s", "Timeout is -1ns"} {
		require.ErrorContains(t, err, part)
	}
	mux := NewMux()
	none := func(context.Context, []*Job, []line) []error { return nil }
	require.ErrorContains(t, HandleBatch(mux, 1001, none, nil), "batches of 1001 jobs: want 1 to 1000")
	require.NoError(t, HandleBatch(mux, 1000, none, &BatchOptions{Wait: time.Minute, Timeout: time.Hour}))
	require.ErrorContains(t, HandleBatch(mux, 1, none, nil), `kind "line" has a handler already`)
	require.Equal(t, time.Hour, mux.timeoutFor("line"))
}
