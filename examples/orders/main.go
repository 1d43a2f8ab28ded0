// Command orders closes orders that nobody has paid in time, and shows that it does so exactly once while its workers are
// killed and its Redis forgets everything. It needs redis-server and PostgreSQL installed, or the addresses of both.
//
// What to copy is in shop.go (the SQL), queue.go (the job) and overdue.go (the scan). The rest breaks it and checks it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// settings are the flags.
type settings struct {
	redis, postgres string
	queue           string
	orders          int
	due             time.Duration
	work            time.Duration
	workers         int
	within          time.Duration
	worker          bool
}

func parse(args []string) (settings, error) {
	var s settings
	f := flag.NewFlagSet("orders", flag.ContinueOnError)
	f.StringVar(&s.redis, "redis", "", "address of a Redis to use and to FLUSH, host:port; default: one is started")
	f.StringVar(&s.postgres, "postgres", "", "data source name of an empty PostgreSQL database; default: a server is started")
	f.StringVar(&s.queue, "queue", "orders", "name of the queue")
	f.IntVar(&s.orders, "orders", 1000, "how many orders are created, 10 or more")
	f.DurationVar(&s.due, "due", 4*time.Second, "how long an order may wait for its payment; 30m in a shop")
	f.DurationVar(&s.work, "work", 100*time.Millisecond, "how long closing an order takes, so that kills meet work under way")
	f.IntVar(&s.workers, "workers", 3, "how many worker processes run")
	f.DurationVar(&s.within, "within", time.Minute, "after how long it gives up")
	f.BoolVar(&s.worker, "worker", false, "be one worker (used by the command itself; needs -redis and -postgres)")
	if err := f.Parse(args); err != nil {
		return s, err
	}
	var errs []error
	if f.NArg() > 0 {
		errs = append(errs, fmt.Errorf("unexpected argument %q", f.Arg(0)))
	}
	if s.orders < 10 || s.workers < 1 || s.due <= 0 || s.work < 0 || s.within <= 0 {
		errs = append(errs, errors.New("want -orders of 10 or more, -workers of 1 or more, -due and -within of more than 0, -work of 0 or more"))
	}
	if s.worker && (s.redis == "" || s.postgres == "") {
		errs = append(errs, errors.New("-worker needs -redis and -postgres"))
	}
	return s, errors.Join(errs...)
}

func main() {
	s, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "orders:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if s.worker {
		err = work(ctx, s)
	} else {
		err = show(ctx, s)
	}
	if err != nil {
		stop()
		fmt.Fprintln(os.Stderr, "orders:", err)
		os.Exit(1)
	}
}
