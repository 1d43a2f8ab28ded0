package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/leaseq/leaseq/reliable"
)

// A workerConfig is the first line of a worker's standard input. It is not on the command line, since a URL can hold a
// password that everybody on the machine could read there.
type workerConfig struct {
	URL   string `json:"url"`
	Queue string `json:"queue"`
	File  string `json:"file"`
	Name  string `json:"name"`
}

// WorkerCommand returns the hidden command that the demonstration starts as its workers: processes of this program that
// embed a [reliable.Consumer]. A worker ends in order when its standard input ends, so also when the demonstration was
// killed.
func WorkerCommand() *cobra.Command {
	return &cobra.Command{
		Use:           workerCommand,
		Short:         "A worker of the demo, started by it",
		Hidden:        true,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := work(cmd.Context(), os.Stdin)
			if err != nil {
				fmt.Fprintln(os.Stderr, err) // the demonstration reads it
			}
			return err
		},
	}
}

// work runs a worker until its input or ctx ends.
func work(ctx context.Context, input io.Reader) error {
	lines := bufio.NewReader(input)
	first, err := lines.ReadBytes('\n')
	var config workerConfig
	if err == nil {
		err = json.Unmarshal(first, &config)
	}
	if err != nil {
		return fmt.Errorf("%s is started by the demo only, which tells it on standard input what to do: %w", workerCommand, err)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, lines)
		stop()
		// Nobody waits for a worker without a demonstration: it ends, whatever keeps it.
		time.AfterFunc(stopBound, func() { os.Exit(3) })
	}()
	return consume(ctx, &config)
}

func consume(ctx context.Context, config *workerConfig) error {
	options, err := redis.ParseURL(config.URL)
	if err != nil {
		return errors.New("the Redis URL cannot be read") // the error would show it
	}
	rdb := redis.NewClient(options)
	defer rdb.Close()
	queue, err := openQueue(rdb, config.Queue)
	if err != nil {
		return err
	}
	rec, err := newRecorder(config.File, config.Name, func(err error) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(4) // a worker that cannot write down what it does would make the ledger wrong
	})
	if err != nil {
		return err
	}
	defer rec.close()
	mux, err := newShop(rec)
	if err != nil {
		return err
	}
	consumer, err := reliable.NewConsumer(queue, mux, &reliable.ConsumerOptions{
		Concurrency: slots, DrainTimeout: drainTimeout, WakeFallback: wakeFallback, Hooks: rec.hooks(),
	})
	if err != nil {
		return err
	}
	rec.write(line{Event: isUp})
	err = consumer.Run(ctx)
	closing, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err = errors.Join(err, queue.Close(closing))
	if err == nil {
		rec.write(line{Event: isDown})
	}
	return err
}

// hooks writes down how each delivery ended, once Redis has answered.
func (r *recorder) hooks() *reliable.Hooks {
	finish := func(how outcome) func(context.Context, reliable.Event) {
		return func(_ context.Context, e reliable.Event) {
			l := line{Event: isFinish, ID: e.ID, Kind: e.Kind, Attempt: e.Attempt, Fence: e.Fence, Outcome: how}
			if e.Err != nil {
				l.Reason = e.Err.Error()
			}
			r.write(l)
		}
	}
	return &reliable.Hooks{
		OnDone: finish(wasAcked), OnRetry: finish(wasRetried), OnDead: finish(wasBuried), OnRelease: finish(wasReleased),
		OnLost: finish(wasLost), OnCancelled: finish(wasCancelled),
		OnError: func(_ context.Context, e reliable.Event) {
			r.write(line{Event: isTrouble, ID: e.ID, Reason: e.Err.Error()})
		},
	}
}
