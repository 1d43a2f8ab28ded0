// Command worker works on one queue and records its history, until SIGTERM, which it follows with a clean stop, or the
// end of its standard input, which is its parent's. It compiles against earlier commits too: it uses nothing that is
// younger than package chaos/record.
//
// In its environment: LEASEQ_CHAOS_URL (redis://…), _PREFIX, _QUEUE, _SLOTS (its concurrency), _LEASE (as 2s), _HISTORY
// (the file to write) and _PROCESS (its name in it).
//
// A job of kind "hang" is held, when it is started for the first time, until its context ends. All others, and all later
// starts, end at once, with success.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leaseq/leaseq/chaos/record"
	"github.com/leaseq/leaseq/reliable"
)

func main() {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(3)
	}()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func variable(name string) string { return os.Getenv("LEASEQ_CHAOS_" + name) }

func run(ctx context.Context) error {
	server, err1 := redis.ParseURL(variable("URL"))
	slots, err2 := strconv.Atoi(variable("SLOTS"))
	lease, err3 := time.ParseDuration(variable("LEASE"))
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	rdb := redis.NewClient(server)
	defer rdb.Close()
	q, err := reliable.New(rdb, variable("QUEUE"), &reliable.QueueOptions{Prefix: variable("PREFIX"), Lease: lease})
	if err != nil {
		return err
	}
	rec, err := record.Open(variable("HISTORY"), &record.Options{
		Queue: variable("QUEUE"), Process: variable("PROCESS"), Slots: slots, Lease: lease,
	})
	if err != nil {
		return err
	}
	c, err := reliable.NewConsumer(q, reliable.HandlerFunc(handle), &reliable.ConsumerOptions{
		Concurrency: slots, DrainTimeout: lease, Middleware: []reliable.Middleware{rec.Middleware()}, Hooks: rec.Hooks(nil),
	})
	if err != nil {
		return err
	}
	err = c.Run(ctx)
	var drain *reliable.DrainError
	if errors.As(err, &drain) { // Redis was away at the end
		err = nil
	}
	over, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = q.Close(over)
	return errors.Join(err, rec.Close())
}

func handle(ctx context.Context, job *reliable.Job) error {
	if job.Kind == "hang" && job.Attempt == 1 && job.Redrives == 0 {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	return nil
}
