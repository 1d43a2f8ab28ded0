package reliable_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/leaseq/leaseq/reliable"
)

// The code of README.md and of docs/consumer.md; a test compares them, and another one sends the signals.

func serve(q *reliable.Queue, h reliable.Handler) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // the first signal drains; a second one ends the process at once, as without us

	c, err := reliable.NewConsumer(q, h, nil)
	if err != nil {
		return err
	}
	err = c.Run(ctx)
	if left := (*reliable.DrainError)(nil); errors.As(err, &left) {
		fmt.Fprintln(os.Stderr, "these jobs run again elsewhere:", left.IDs)
	}
	return err
}

// The main function of a worker: it drains at the first SIGINT or SIGTERM, and ends at once at a second one.
func ExampleConsumer_Run_signals() {
	run := func(q *reliable.Queue, mux *reliable.Mux) {
		if err := serve(q, mux); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	_ = run
}
