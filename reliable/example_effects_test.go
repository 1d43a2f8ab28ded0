package reliable_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leaseq/leaseq/idempotency"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/reliable"
)

// exampleWork runs a handler until it returns nil.
func exampleWork(name string, o *reliable.QueueOptions, h reliable.HandlerFunc) {
	rdb := exampleRedis()
	defer rdb.Close()
	queue, err := reliable.New(rdb, name, o)
	if err != nil {
		panic(err)
	}
	defer queue.Close(context.Background())
	ctx, stop := context.WithCancel(context.Background())
	consumer, err := reliable.NewConsumer(queue, reliable.HandlerFunc(func(ctx context.Context, job *reliable.Job) error {
		err := h(ctx, job)
		if err == nil {
			stop()
		}
		return err
	}), nil)
	if err != nil {
		panic(err)
	}
	if _, err := queue.Enqueue(ctx, reliable.Item{Kind: "order-paid"}); err != nil {
		panic(err)
	}
	if err := consumer.Run(ctx); err != nil {
		panic(err)
	}
}

// A job has two effects, and fails between them the first time. Each runs once.
func ExampleJob_Once() {
	failed := false
	exampleWork("example-once", fastRetries(), func(ctx context.Context, job *reliable.Job) error {
		err := job.Once(ctx, "coupon", func(context.Context) error {
			fmt.Println("the coupon is granted")
			return nil
		})
		if err != nil {
			return err
		}
		if !failed {
			failed = true
			return errors.New("the mail server is away")
		}
		return job.OnceAndAck(ctx, "mail", func(context.Context) error {
			fmt.Println("the mail is sent")
			return nil
		})
	})
	// Output:
	// the coupon is granted
	// the mail is sent
}

// With the policy Ask a handler is told that nobody knows whether the effect happened, and asks whoever does.
func ExampleJob_BeginOnce() {
	o := fastRetries()
	o.Effects.InDoubt = idempotency.Ask
	ledger := map[string]bool{} // the bank's
	exampleWork("example-begin-once", o, func(ctx context.Context, job *reliable.Job) error {
		a, err := job.BeginOnce(ctx, "refund")
		if err != nil {
			return err
		}
		switch {
		case a.Done:
			fmt.Println("refunded before")
			return nil
		case a.InDoubt && ledger[job.ID]:
			fmt.Println("the bank says that it was refunded")
			return job.CompleteAndAck(ctx, a.Permit, nil)
		}
		ledger[job.ID] = true
		return errors.New("the answer of the bank was lost")
	})
	// Output:
	// the bank says that it was refunded
}

// A key of the shop's own, shared by a job and an HTTP handler: whoever comes first grants the coupon.
func ExampleJob_CompleteAndAck() {
	rdb := exampleRedis()
	defer rdb.Close()
	guard, err := idempotency.New(rdb, "example-coupons", nil)
	if err != nil {
		panic(err)
	}
	defer guard.Close(context.Background())
	key := fmt.Sprintf("coupon:10086:%d", time.Now().UnixNano())
	exampleWork("example-complete-and-ack", nil, func(ctx context.Context, job *reliable.Job) error {
		a, err := job.Begin(ctx, guard, key, nil)
		var busy *idempotency.InFlightError
		switch {
		case errors.As(err, &busy):
			return reliable.ReleaseAfter(busy.Wait, err)
		case err != nil || a.Done:
			return err
		}
		return job.CompleteAndAck(ctx, a.Permit, []byte("SAVE10"))
	})
	again, err := guard.Begin(context.Background(), key, nil)
	fmt.Println(again.Done, string(again.Result), err)
	// Output:
	// true SAVE10 <nil>
}

func fastRetries() *reliable.QueueOptions {
	return &reliable.QueueOptions{Backoff: reliable.Backoff{Base: time.Millisecond, Cap: time.Millisecond}}
}

// exampleRedis is the tests' server. Examples have no *testing.T of their own.
func exampleRedis() *redis.Client { return redis.NewClient(redistest.Options(&testing.B{})) }
