package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/lease"
	"github.com/leaseq/leaseq/reliable"
)

// newJobCommands are the commands about the jobs of one queue.
func newJobCommands(a *App) []*cobra.Command {
	return []*cobra.Command{
		newListCommand(a), newDeadCommand(a), newShowCommand(a), newCancelCommand(a), newRescheduleCommand(a), newPromoteCommand(a),
		newBuryCommand(a), newEditCommand(a), newRedriveCommand(a), newPurgeCommand(a), newExportCommand(a), newImportCommand(a), newPauseCommand(a), newResumeCommand(a),
	}
}

// jobFlags are what every command about the jobs of one queue takes, and what comes of it.
type jobFlags struct {
	app        *App
	connection connectionFlags
	json       bool
	timeout    time.Duration

	queue    string
	in       io.Reader
	endpoint *endpoint
	rdb      redis.UniversalClient
	q        *reliable.Queue
}

func (f *jobFlags) add(flags *pflag.FlagSet) {
	f.connection.add(flags)
	flags.BoolVar(&f.json, "json", false, "print JSON on standard output")
	flags.DurationVar(&f.timeout, "timeout", 10*time.Second, "how long one call may take, Redis being away included")
}

// prepare checks what belongs to the queue, and contacts nobody. payloadLimit is that of payloads to be sent, 0 for none.
func (f *jobFlags) prepare(cmd *cobra.Command, queue string, payloadLimit int) (err error) {
	f.in, f.queue = cmd.InOrStdin(), queue
	if f.timeout <= 0 {
		return fmt.Errorf("--timeout %v: want more than 0, as 10s", f.timeout)
	}
	if err := keys.ValidateName("queue name", queue); err != nil {
		return err
	}
	if f.endpoint, err = f.connection.parse(); err != nil {
		return err
	}
	f.rdb = f.app.open(f.endpoint, true)
	f.q, err = reliable.New(f.rdb, queue, &reliable.QueueOptions{Prefix: f.connection.prefix, PayloadLimit: payloadLimit})
	if err != nil {
		return fmt.Errorf("--payload-limit: %w", err) // all else was checked
	}
	return nil
}

// close ends the queue's sessions, within a bound.
func (f *jobFlags) close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeBound)
	defer cancel()
	_ = f.q.Close(ctx)
}

// command makes a command about the jobs of one queue out of what it says of itself; work runs with an open queue.
func (f *jobFlags) command(cmd *cobra.Command, prepare func(cmd *cobra.Command, args []string) error, work func(ctx context.Context) error) *cobra.Command {
	cmd.PreRunE = prepare
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		defer f.close()
		return work(cmd.Context())
	}
	cmd.ValidArgsFunction = completeQueues(f.app, 1)
	f.add(cmd.Flags())
	return cmd
}

// call bounds one call, which a signal does not cut off: it is short.
func (f *jobFlags) call(ctx context.Context, do func(ctx context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("stopped: %w", context.Cause(ctx))
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.timeout)
	defer cancel()
	err := do(bounded)
	if isUnknown(err) {
		truth := newTruths(f.timeout)
		defer truth.cancel()
		err = truth.of(err)
	}
	return f.failed(err)
}

// failed says what an error of Redis, of the way to it, or of a job, means.
func (f *jobFlags) failed(err error) error {
	switch {
	case err == nil, isAnswer(err):
		return err
	case isUnknown(err):
		return &ExitError{Code: exitRedis, Err: fmt.Errorf("it is not known whether the last call was done: run this again: %w", err)}
	}
	return f.endpoint.failed(err)
}

// isAnswer reports whether an error is what the queue says of a job.
func isAnswer(err error) bool {
	return errors.Is(err, reliable.ErrLost) || errors.Is(err, reliable.ErrChanged) || errors.Is(err, reliable.ErrDuplicate) ||
		isRefusal(err)
}

// isRefusal reports whether a limit of the queue has refused a job.
func isRefusal(err error) bool {
	return errors.As(err, new(*reliable.TooLargeError)) || errors.As(err, new(*reliable.DelayTooLongError)) || errors.Is(err, reliable.ErrQueueFull)
}

// known refuses a queue that is in no registry: a name that is misspelt looks like an empty queue.
func (f *jobFlags) known(ctx context.Context) error {
	var names []string
	err := f.call(ctx, func(ctx context.Context) (err error) {
		names, err = lease.Queues(ctx, f.rdb, f.connection.prefix)
		return err
	})
	if err != nil || slices.Contains(names, f.queue) {
		return err
	}
	slices.Sort(names)
	return fmt.Errorf("queue %s: nobody has used it under prefix %s; known are: %s", f.queue, f.connection.prefix, list(names))
}

// writeJSONLine prints one value as one line, without the escapes that only a browser needs.
func writeJSONLine(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(value)
}
