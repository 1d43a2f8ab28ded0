package reaper_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leaseq/leaseq/lease"
	"github.com/leaseq/leaseq/reaper"
)

// A sidecar of one's own: it looks after all queues until the process is asked to end.
func ExampleReaper_Run() {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})
	defer rdb.Close()
	r, err := reaper.New(rdb, &reaper.Options{
		Logger: slog.Default(),
		OnSweep: func(queue string, e lease.Expired) {
			fmt.Println(queue, "back to due:", e.ToDue, "dead:", e.ToDead)
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := r.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

// One pass from cron, with time enough to wait until holders had their chance to extend.
func ExampleReaper_Sweep() {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})
	defer rdb.Close()
	r, err := reaper.New(rdb, &reaper.Options{Queues: []string{"orders", "mail"}})
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	swept, err := r.Sweep(ctx, nil)
	for queue, e := range swept {
		fmt.Println(queue, "back to due:", e.ToDue, "dead:", e.ToDead)
	}
	if err != nil {
		log.Fatal(err)
	}
}
