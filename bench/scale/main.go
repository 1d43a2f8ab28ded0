// Command scale measures what calls cost on the server while a queue grows: to ten million jobs that wait, and a million
// that are worked on; and what a job needs in memory. It starts its own redis-servers and loads every job through the
// library. It ends with 1 if a call of the default batch took more than 10 ms of the server, or if costs grow faster than
// the logarithm of the number of jobs.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	s, err := parse(os.Args[1:], os.Stderr)
	if errors.Is(err, errHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err = run(ctx, s, os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

// run measures, writes what came out, and returns as an error what is not as it has to be.
func run(ctx context.Context, s settings, out, log io.Writer) error {
	d, err := read(s.from)
	switch {
	case err != nil:
	case s.from == "":
		d, err = measure(ctx, s.plan(), s.quick, log)
	case s.whole:
		err = (&runner{plan: s.plan(), document: d, log: log}).whole(ctx)
	}
	if err != nil {
		return err
	}
	if err := write(s, d, out); err != nil {
		return err
	}
	return d.judge()
}

// measure makes all measurements of a plan.
func measure(ctx context.Context, p plan, quick bool, log io.Writer) (*document, error) {
	started := time.Now()
	r := &runner{plan: p, document: newDocument(quick, started), log: log}
	for _, step := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"jobs in due", r.growDue},
		{"jobs in processing", r.growProcessing},
		{"payloads and IDs", r.growJobs},
		{"producers and consumers", r.whole},
	} {
		r.say("%s", step.what)
		if err := step.do(ctx); err != nil {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			return nil, fmt.Errorf("%s: %w", step.what, err)
		}
	}
	r.document.Seconds = time.Since(started).Round(time.Second).Seconds()
	r.say("done in %s", time.Since(started).Round(time.Second))
	return r.document, nil
}

// A runner fills in a document.
type runner struct {
	plan     plan
	document *document
	log      io.Writer
}

func (r *runner) say(format string, args ...any) { fmt.Fprintf(r.log, format+"\n", args...) }
