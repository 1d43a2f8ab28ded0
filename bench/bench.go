package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
)

// A bench is one run of the command.
type bench struct {
	plan    plan
	systems []func() System
	only    []string // names of measurements; empty: all
	aof     bool
	program string // this program, to start as a worker
	results *results

	mu  sync.Mutex
	log io.Writer
}

// A stand is one system, opened on a server of its own that was empty.
type stand struct {
	System
	options Options
	server  *server
	bench   *bench
	closed  bool
}

// close closes the system, once.
func (s *stand) close(ctx context.Context) error {
	if s.closed {
		return nil
	}
	s.closed = true
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return s.Close(ctx)
}

// A standFunc measures one system.
type standFunc func(ctx context.Context, s *stand) error

// add adds a value to a figure of the stand's system.
func (s *stand) add(figure string, value float64) {
	if s.options.Fast {
		figure += "_fast"
	}
	s.bench.results.add(s.Name(), figure, value)
}

// say tells of progress.
func (b *bench) say(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	fmt.Fprintf(b.log, format+"\n", args...)
}

// A measurement fills in some figures.
type measurement struct {
	name   string
	rounds bool // it is repeated in every round
	run    func(ctx context.Context, b *bench, round int) error
}

// measurements are all there are, in the order in which they run.
var measurements = []measurement{
	{"enqueue", true, measureEnqueue},
	{"process", true, measureProcess},
	{"steady", true, measureSteady},
	{"memory", false, measureMemory},
	{"idle", false, measureIdle},
	{"latency", false, measureLatency},
	{"delayed", false, measureDelayed},
	{"recovery", false, measureRecovery},
}

// measurementNames are the names, for the help.
func measurementNames() []string {
	var names []string
	for _, m := range measurements {
		names = append(names, m.name)
	}
	return names
}

func (b *bench) wants(m measurement) bool {
	return len(b.only) == 0 || slices.Contains(b.only, m.name)
}

// run makes all measurements. One that fails is told of in the error, and the others go on, unless ctx has ended.
func (b *bench) run(ctx context.Context) error {
	var errs []error
	one := func(m measurement, round int) {
		if !b.wants(m) || ctx.Err() != nil {
			return
		}
		if err := m.run(ctx, b, round); err != nil {
			b.say("  failed: %v", err)
			errs = append(errs, err)
		}
	}
	for round := range b.plan.rounds {
		if ctx.Err() != nil {
			break
		}
		b.say("round %d of %d", round+1, b.plan.rounds)
		for _, m := range measurements {
			if m.rounds {
				one(m, round)
			}
		}
	}
	for _, m := range measurements {
		if !m.rounds {
			one(m, 0)
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return errors.Join(errs...)
}

// inTurn makes a measurement of one system after the other. Each round begins with another one.
func (b *bench) inTurn(ctx context.Context, round int, what string, measure standFunc) error {
	for i := range b.systems {
		makeSystem := b.systems[(i+round)%len(b.systems)]
		if err := b.stand(ctx, makeSystem(), Options{}, what, measure); err != nil {
			return err
		}
	}
	return nil
}

// atOnce makes a measurement of all systems at the same time, each on its own server: for what waits and hardly works.
func (b *bench) atOnce(ctx context.Context, what string, variants []Options, measure standFunc) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	for _, makeSystem := range b.systems {
		for _, o := range variants {
			all.Go(func() {
				if err := b.stand(ctx, makeSystem(), o, what, measure); err != nil {
					cancel(err) // the first one counts
				}
			})
		}
	}
	all.Wait()
	return context.Cause(ctx)
}

// variants are the default settings, and the fast ones if the plan has them.
func (b *bench) variants() []Options {
	if b.plan.fast {
		return []Options{{}, {Fast: true}}
	}
	return []Options{{}}
}

// stand starts a server, opens a system on it, measures, and ends both.
func (b *bench) stand(ctx context.Context, system System, o Options, what string, measure standFunc) (err error) {
	name := system.Name()
	if o.Fast {
		name += ", fast settings"
	}
	ctx, cancel := context.WithTimeoutCause(ctx, b.plan.timeout, fmt.Errorf("not done within %s", b.plan.timeout))
	defer cancel()
	defer func() {
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx) // the rest follows from it
		}
		if err != nil {
			err = fmt.Errorf("%s: %s: %w", what, name, err)
		}
	}()
	server, err := startServer(ctx, b.aof)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.stop(ctx)) }()
	b.results.noteServer(server.version)
	if err := system.Open(ctx, server.Addr(), o); err != nil {
		return err
	}
	s := &stand{System: system, options: o, server: server, bench: b}
	started := time.Now()
	err = measure(ctx, s)
	err = errors.Join(err, s.close(ctx))
	b.say("  %-28s %-22s %6.1fs", what, name, time.Since(started).Seconds())
	return err
}
