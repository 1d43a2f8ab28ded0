package chaos_test

import (
	"context"
	"testing"
	"time"

	"github.com/leaseq/leaseq/chaos"
	"github.com/leaseq/leaseq/reliable"
)

// CloseOrder is a job of the worker that is tested here.
type CloseOrder struct{ Order int }

// Kind names the job.
func (CloseOrder) Kind() string { return "order.close" }

// closeOrder is the handler that is tested: it takes a moment, and one order in ten fails at first.
func closeOrder(ctx context.Context, job *reliable.Job, o CloseOrder) error {
	select {
	case <-time.After(time.Duration(o.Order%50) * time.Millisecond):
	case <-ctx.Done():
	}
	if o.Order%10 == 0 && job.Attempt == 1 {
		return reliable.RetryAfter(50*time.Millisecond, context.DeadlineExceeded)
	}
	return context.Cause(ctx)
}

// TestAWorkerOfYoursIsTestedInFifteenLines is the example of docs/chaos.md.
func TestAWorkerOfYoursIsTestedInFifteenLines(t *testing.T) {
	t.Parallel()
	chaos.Test(t, &chaos.Options{
		Duration: 12 * time.Second, Lease: time.Second, Rate: 100,
		Job: func(i int) (reliable.Kinder, *reliable.EnqueueOptions) { return CloseOrder{Order: i}, nil },
		Worker: func(ctx context.Context, w *chaos.Worker) error {
			q, err := reliable.New(w.Client(), w.Queue(), w.QueueOptions())
			if err != nil {
				return err
			}
			mux := reliable.NewMux()
			if err := reliable.Handle(mux, closeOrder, nil); err != nil {
				return err
			}
			c, err := reliable.NewConsumer(q, mux, w.ConsumerOptions())
			if err != nil {
				return err
			}
			return c.Run(ctx)
		},
	})
}
