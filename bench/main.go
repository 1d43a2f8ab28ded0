// Command bench measures leaseq, asynq and a bare pop from a ZSET side by side: what they do in a second, what a job costs,
// and how soon jobs start. It needs redis-server. README.md says what each figure means.
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
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	if s.worker != "" {
		err = beVictim(ctx, s)
	} else {
		err = run(ctx, s, os.Stdout, os.Stderr)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run measures by the settings, and writes what came out: also what there is when something failed.
func run(ctx context.Context, s settings, out, log io.Writer) error {
	systems, err := choose(s.systems)
	if err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	b := &bench{plan: s.plan(), systems: systems, only: s.only, aof: s.aof, program: program, results: newResults(), log: log}
	started := time.Now()
	failed := b.run(ctx)
	if ctx.Err() != nil {
		return failed
	}
	d := newDocument(b, s.quick, started)
	b.say("done in %s", time.Since(started).Round(time.Second))
	encoded, err := d.encode()
	switch {
	case err != nil:
	case s.json:
		_, err = fmt.Fprintf(out, "%s\n", encoded)
	default:
		err = writeReport(out, d, encoded)
	}
	return errors.Join(failed, err)
}
