package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"strconv"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leaseq/leaseq/chaos/record"
	"github.com/leaseq/leaseq/reliable"
)

// ownWorkerVariable makes this test binary a worker of `reaper chaos`, as a program of a user's is one.
const ownWorkerVariable = "TEST_OWN_WORKER"

// askedFor is what --payload makes.
var askedFor = regexp.MustCompile(`^\{"order":[0-9]+\}$`)

// ownWorker works until SIGTERM, and returns the exit code.
func ownWorker() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := workFromEnv(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func workFromEnv(ctx context.Context) (err error) {
	rec, err := record.FromEnv()
	if err != nil {
		return err
	}
	options, err := redis.ParseURL(os.Getenv(record.EnvURL))
	if err != nil {
		return err
	}
	slots, err := strconv.Atoi(os.Getenv(record.EnvSlots))
	if err != nil {
		return err
	}
	lease, err := time.ParseDuration(os.Getenv(record.EnvLease))
	if err != nil {
		return err
	}
	rdb := redis.NewClient(options)
	q, err := reliable.New(rdb, os.Getenv(record.EnvQueue), &reliable.QueueOptions{
		Prefix: os.Getenv(record.EnvPrefix), Lease: lease, Backoff: reliable.Backoff{Base: 20 * time.Millisecond, Cap: time.Second},
	})
	if err != nil {
		return err
	}
	handler := reliable.HandlerFunc(func(_ context.Context, job *reliable.Job) error {
		if job.Kind != "order.close" || !askedFor.Match(job.Payload) {
			return reliable.Discard(fmt.Errorf("a job of kind %q with %q was not asked for", job.Kind, job.Payload))
		}
		return nil
	})
	c, err := reliable.NewConsumer(q, handler, &reliable.ConsumerOptions{
		Concurrency: slots, Middleware: []reliable.Middleware{rec.Middleware()}, Hooks: rec.Hooks(nil), DrainTimeout: lease,
	})
	if err != nil {
		return err
	}
	err = c.Run(ctx)
	if errors.As(err, new(*reliable.DrainError)) {
		err = nil // what these leases cost, the check says
	}
	over, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_ = q.Close(over)
	return errors.Join(err, rec.Close(), rdb.Close())
}
