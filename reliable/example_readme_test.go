package reliable_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/leaseq/leaseq/reliable"
)

// The code of README.md; a test compares the two.

type Refund struct {
	ID          string
	AmountCents int
}

func (Refund) Kind() string { return "refund.pay" }

func work(ctx context.Context, rdb redis.UniversalClient, after time.Duration) error {
	q, err := reliable.New(rdb, "refunds", &reliable.QueueOptions{Lease: 30 * time.Second})
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		_ = q.Close(closing)
	}()

	// The ID makes this refund one job, however often it is enqueued while the job exists.
	_, err = reliable.Enqueue(ctx, q, Refund{ID: "R7", AmountCents: 1250}, &reliable.EnqueueOptions{ID: "refund:R7", Delay: after})
	if err != nil && !errors.Is(err, reliable.ErrDuplicate) {
		return err
	}

	mux := reliable.NewMux()
	err = reliable.Handle(mux, func(ctx context.Context, job *reliable.Job, r Refund) error {
		return pay(ctx, r, job.Fence()) // nil acks the job, an error runs it again later; ctx ends with the lease
	}, nil)
	if err != nil {
		return err
	}
	c, err := reliable.NewConsumer(q, mux, &reliable.ConsumerOptions{Concurrency: 50})
	if err != nil {
		return err
	}
	return c.Run(ctx) // until ctx ends; then it claims nothing more, drains, and gives the rest back
}

var pay = func(context.Context, Refund, int64) error { return nil }

func Example_embed() {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()

	ctx, stop := context.WithCancel(context.Background())
	pay = func(_ context.Context, r Refund, _ int64) error {
		fmt.Println("paying", r.ID, r.AmountCents)
		stop()
		return nil
	}
	fmt.Println(work(ctx, rdb, time.Millisecond))
	// Output:
	// paying R7 1250
	// <nil>
}
