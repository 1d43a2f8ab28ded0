package reliable_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/leaseq/leaseq/reliable"
)

// Sum is a job with a result.
type Sum struct{ Numbers []int }

func (Sum) Kind() string { return "sum" }

func handleSum(_ context.Context, job *reliable.Job, sum Sum) error {
	total := 0
	for _, n := range sum.Numbers {
		total += n
	}
	result, err := json.Marshal(total)
	if err != nil {
		return err
	}
	return job.SetResult(result) // nil: the ack takes it along
}

func ExampleJob_SetResult() {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	ctx, stop := context.WithTimeout(context.Background(), 20*time.Second)
	defer stop()

	q, err := reliable.New(rdb, "sums", &reliable.QueueOptions{DoneAge: 24 * time.Hour})
	if err != nil {
		panic(err)
	}
	defer q.Close(context.Background())
	if _, err := reliable.Enqueue(ctx, q, Sum{Numbers: []int{1, 2, 3}}, &reliable.EnqueueOptions{ID: "sum:1"}); err != nil {
		panic(err)
	}
	mux := reliable.NewMux()
	if err := reliable.Handle(mux, handleSum, nil); err != nil {
		panic(err)
	}
	acked := make(chan struct{})
	c, err := reliable.NewConsumer(q, mux, &reliable.ConsumerOptions{Hooks: &reliable.Hooks{
		OnDone: func(context.Context, reliable.Event) { close(acked) },
	}})
	if err != nil {
		panic(err)
	}
	running, end := context.WithCancel(ctx)
	ended := make(chan error)
	go func() { ended <- c.Run(running) }()
	<-acked
	end()
	if err := <-ended; err != nil {
		panic(err)
	}

	result, err := q.Result(ctx, "sum:1")
	fmt.Printf("%s %v\n", result, err)
	_, err = reliable.Enqueue(ctx, q, Sum{}, &reliable.EnqueueOptions{ID: "sum:1"})
	fmt.Println(errors.Is(err, reliable.ErrDuplicate), err)
	// Output:
	// 6 <nil>
	// true job sum:1 exists already, in done, and was left as it is
}
