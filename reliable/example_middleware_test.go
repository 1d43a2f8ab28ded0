package reliable_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/leaseq/leaseq/reliable"
)

// timed logs how long each run took, and what came of it.
func timed(log *slog.Logger) reliable.Middleware {
	return func(next reliable.Handler) reliable.Handler {
		return reliable.HandlerFunc(func(ctx context.Context, job *reliable.Job) error {
			began := time.Now()
			err := next.Handle(ctx, job)
			log.InfoContext(ctx, "ran", "kind", job.Kind, "took", time.Since(began), "error", err)
			return err
		})
	}
}

// jobLog adds the job's ID to every line that is logged with a context of a job.
type jobLog struct{ slog.Handler }

func (h jobLog) Handle(ctx context.Context, line slog.Record) error {
	if job, ok := reliable.JobFrom(ctx); ok {
		line.AddAttrs(slog.String("job", job.ID))
	}
	return h.Handler.Handle(ctx, line)
}

// A middleware around all handlers, and code below them that finds the job in its context.
func ExampleMiddleware() {
	server, err := miniredis.Run() // stands in for your Redis
	if err != nil {
		panic(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	ctx, stop := context.WithCancel(context.Background())
	q, err := reliable.New(rdb, "orders", nil)
	if err != nil {
		panic(err)
	}
	defer q.Close(context.Background())

	withoutTimes := func(_ []string, a slog.Attr) slog.Attr { // an example prints the same each time
		if a.Key == slog.TimeKey || a.Key == "took" {
			return slog.Attr{}
		}
		return a
	}
	log := slog.New(jobLog{slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: withoutTimes})})
	mux := reliable.NewMux()
	err = reliable.Handle(mux, func(ctx context.Context, _ *reliable.Job, o CloseOrder) error {
		log.InfoContext(ctx, "closing", "order", o.ID)
		stop()
		return nil
	}, nil)
	if err != nil {
		panic(err)
	}
	c, err := reliable.NewConsumer(q, mux, &reliable.ConsumerOptions{Middleware: []reliable.Middleware{timed(log)}})
	if err != nil {
		panic(err)
	}
	if _, err := reliable.Enqueue(ctx, q, CloseOrder{ID: "10086"}, &reliable.EnqueueOptions{ID: "close:10086"}); err != nil {
		panic(err)
	}
	fmt.Println(c.Run(ctx))
	// Output:
	// level=INFO msg=closing order=10086 job=close:10086
	// level=INFO msg=ran kind=order.close error=<nil> job=close:10086
	// <nil>
}

// Headers travel beside the payload, and are the same at every start.
func ExampleJob_headers() {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	ctx, stop := context.WithCancel(context.Background())
	q, err := reliable.New(rdb, "orders", nil)
	if err != nil {
		panic(err)
	}
	defer q.Close(context.Background())

	_, err = reliable.Enqueue(ctx, q, CloseOrder{ID: "10086"}, &reliable.EnqueueOptions{
		Headers: map[string]string{"traceparent": "00-4bf92f35-01", "tenant": "shop-7"},
	})
	if err != nil {
		panic(err)
	}
	mux := reliable.NewMux()
	err = reliable.Handle(mux, func(_ context.Context, job *reliable.Job, o CloseOrder) error {
		fmt.Println(o.ID, job.Attempt, job.Headers["tenant"], job.Headers["traceparent"])
		if job.Attempt == 1 {
			return reliable.RetryAfter(0, nil)
		}
		stop()
		return nil
	}, nil)
	if err != nil {
		panic(err)
	}
	c, err := reliable.NewConsumer(q, mux, nil)
	if err != nil {
		panic(err)
	}
	fmt.Println(c.Run(ctx))
	// Output:
	// 10086 1 shop-7 00-4bf92f35-01
	// 10086 2 shop-7 00-4bf92f35-01
	// <nil>
}
