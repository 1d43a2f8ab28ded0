package reliable_test

import (
	"context"
	"fmt"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/leaseq/leaseq/reliable"
)

// serveBoth works on two queues with fifty slots: while both have work, six orders begin for each notice.
func serveBoth(ctx context.Context, orders, notices *reliable.Queue, h reliable.Handler) error {
	c, err := reliable.NewMultiConsumer([]reliable.Share{
		{Queue: orders, Handler: h, Weight: 6},
		{Queue: notices, Handler: h, Weight: 1},
	}, &reliable.MultiOptions{Consumer: reliable.ConsumerOptions{Concurrency: 50}})
	if err != nil {
		return err
	}
	return c.Run(ctx)
}

func ExampleNewMultiConsumer() {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var queues []*reliable.Queue
	for _, name := range []string{"orders", "notices"} {
		q, err := reliable.New(rdb, name, nil)
		if err != nil {
			panic(err)
		}
		defer func() { _ = q.Close(context.Background()) }()
		if _, err := q.Enqueue(ctx, reliable.Item{Kind: "of." + name}); err != nil {
			panic(err)
		}
		queues = append(queues, q)
	}
	done := make(chan string, len(queues))
	h := reliable.HandlerFunc(func(_ context.Context, job *reliable.Job) error {
		done <- job.Kind
		return nil
	})
	ended := make(chan error)
	go func() { ended <- serveBoth(ctx, queues[0], queues[1], h) }()
	first := <-done
	fmt.Println("both ran:", first != <-done)
	cancel()
	fmt.Println(<-ended)
	// Output:
	// both ran: true
	// <nil>
}
