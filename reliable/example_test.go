package reliable_test

import (
	"context"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/leaseq/leaseq/reliable"
)

type CloseOrder struct {
	ID string `json:"id"`
}

func (CloseOrder) Kind() string { return "order.close" }

func Example() {
	server, err := miniredis.Run() // stands in for your Redis
	if err != nil {
		panic(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()

	ctx, stop := context.WithCancel(context.Background())
	q, err := reliable.New(rdb, "orders", &reliable.QueueOptions{Lease: 30 * time.Second})
	if err != nil {
		panic(err)
	}
	defer q.Close(context.Background())

	_, err = reliable.Enqueue(ctx, q, CloseOrder{ID: "10086"}, &reliable.EnqueueOptions{
		ID:    "close:10086",         // a second enqueue with this ID is refused while the job exists
		Delay: 20 * time.Millisecond, // 30 * time.Minute in your shop
	})
	if err != nil {
		panic(err) // it may have been enqueued: see UnknownError
	}

	mux := reliable.NewMux()
	err = reliable.Handle(mux, func(ctx context.Context, job *reliable.Job, o CloseOrder) error {
		fmt.Println("closing order", o.ID, "attempt", job.Attempt)
		stop()
		return nil // nil acks; an error puts the job back with a growing delay
	}, nil)
	if err != nil {
		panic(err)
	}
	c, err := reliable.NewConsumer(q, mux, &reliable.ConsumerOptions{Concurrency: 50})
	if err != nil {
		panic(err)
	}
	fmt.Println(c.Run(ctx)) // until ctx ends; then it drains
	// Output:
	// closing order 10086 attempt 1
	// <nil>
}

func ExampleQueue_Claim() {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	ctx := context.Background()
	q, err := reliable.New(rdb, "notices", nil)
	if err != nil {
		panic(err)
	}
	defer q.Close(ctx)
	if _, err := q.Enqueue(ctx, reliable.Item{Kind: "notice", Payload: []byte("your parcel is on its way")}); err != nil {
		panic(err)
	}
	batch, err := q.Claim(ctx, 10, &reliable.ClaimOptions{Wait: time.Second, KeepAlive: true})
	if err != nil {
		panic(err)
	}
	for _, job := range batch.Jobs {
		fmt.Printf("%s: %s\n", job.Kind, job.Payload)
		fmt.Println(job.Ack(ctx))
		fmt.Println(job.Ack(ctx))
	}
	// Output:
	// notice: your parcel is on its way
	// <nil>
	// the job was settled already, by this holder: settle each job once
}
