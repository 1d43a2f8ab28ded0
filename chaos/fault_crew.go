package chaos

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/leaseq/leaseq/chaos/record"
	"github.com/leaseq/leaseq/internal/childproc"
	"github.com/leaseq/leaseq/internal/keys"
)

// crewFaults are those of who else is there, or is not: rows 25 and 26.
func crewFaults() []Fault {
	return []Fault{
		{
			Name: "five-sweepers", Row: 25, Lane: Crew,
			What:   "five sidecars sweep beside the workers, and get SIGKILL",
			Leases: [2]float64{2, 3}, Inject: addSweepers,
		},
		{
			Name: "no-sweeper", Row: 25, Lane: Kills,
			What: "all workers get SIGKILL at once, and nobody sweeps for longer than a lease",
			For:  [2]time.Duration{50 * time.Millisecond, 200 * time.Millisecond}, Leases: [2]float64{1, 1.4}, Inject: killAll,
		},
		{
			Name: "two-versions", Row: 26, Lane: Crew, Available: needOtherVersion,
			What:   "a worker of another version works beside the others",
			Leases: [2]float64{1, 3}, Inject: otherVersion,
		},
	}
}

// A sidecar is one process that only sweeps.
type sidecar struct {
	name    string
	process *childproc.Process
}

// addSweepers starts five sidecars, lets them sweep, and kills them.
func addSweepers(ctx context.Context, in *Injection) error {
	in.Begin("", 0)
	var crew []sidecar
	var errs []error
	for range 5 {
		name := "sweeper-" + strconv.FormatInt(in.storm.sweepers.Add(1), 10)
		process, err := childproc.Start(in.storm.childCommand(roleSweeper, in.storm.server.url, name, filepath.Join(in.storm.histories, name+".jsonl")))
		if err != nil {
			errs = append(errs, fmt.Errorf("%s was not started: %w", name, err))
			break
		}
		crew = append(crew, sidecar{name, process})
	}
	in.Wait(ctx, in.For)
	for range 8 { // on a slow machine they are late
		if slices.ContainsFunc(crew, in.storm.hasSwept) {
			break
		}
		in.Wait(ctx, in.Lease()/4)
	}
	for _, one := range crew {
		if one.process.Ended() {
			errs = append(errs, fmt.Errorf("%s ended by itself (%s): %s", one.name, one.process.How(), one.process.Said()))
		}
		errs = append(errs, one.process.Kill())
		if in.storm.hasSwept(one) {
			in.Bites()
		}
	}
	return errors.Join(errs...)
}

// hasSwept reports whether a sidecar has ended a lease.
func (s *storm) hasSwept(one sidecar) bool {
	found := false
	_ = s.historyOf(one.name, func(e *record.Event) error { // one that was killed while it started has none
		found = found || e.Kind == record.Swept && e.Expired > 0
		return nil
	})
	return found
}

// killAll kills all workers, and starts them again when nobody has swept for more than a lease. It lasts until somebody
// has swept again.
func killAll(ctx context.Context, in *Injection) error {
	partition, err := keys.New(in.Prefix(), in.Queue(), 0)
	if err != nil {
		return err
	}
	posts, err := in.TakeAll(ctx)
	if err != nil {
		return err
	}
	defer func() {
		for _, p := range posts {
			in.GiveBack(p)
		}
	}()
	in.Begin("", 0, record.Outage)
	busy := 0
	for _, p := range posts {
		busy += p.Busy()
		dies := in.beginOne(p.Name(), record.Dies)
		if err := p.Kill(); err != nil {
			return err
		}
		in.endOne(dies)
		in.storm.countKill()
	}
	if busy > 0 {
		in.Bites()
	}
	in.Wait(ctx, in.For)
	after := context.WithoutCancel(ctx)
	begun, err := in.Admin().Time(after).Result()
	var errs []error
	for _, p := range posts {
		errs = append(errs, p.Start())
	}
	if err := errors.Join(append(errs, err)...); err != nil {
		return err
	}
	in.Until(after, answerBound, func() bool {
		swept, err := in.Admin().HGet(after, partition.Key("sweep"), "swept").Int64()
		return err == nil && swept > begun.UnixMilli()
	})
	return nil
}

// beginOne begins a line of the fault with an end of its own.
func (in *Injection) beginOne(target string, effects ...string) int64 {
	n := in.storm.faultNumber.Add(1)
	in.storm.rec.Write(&record.Event{Kind: record.Faulted, Call: n, Out: record.FaultBegin, Name: in.Fault.Name, Target: target, Effects: effects})
	return n
}

func (in *Injection) endOne(n int64) {
	in.storm.rec.Write(&record.Event{Kind: record.Faulted, Call: n, Out: record.FaultEnd})
}

func needOtherVersion(s *Site) error {
	if len(s.storm.OtherVersion) == 0 {
		return errors.New("no program of another version was given (Options.OtherVersion)")
	}
	return nil
}

// otherVersion puts a worker of another version in the place of one, for a while.
func otherVersion(ctx context.Context, in *Injection) error {
	p, err := in.Take(ctx, in.Rand, 0)
	if err != nil {
		return err
	}
	defer in.GiveBack(p)
	if err := p.Terminate(ctx); err != nil {
		return err
	}
	in.Begin(p.nextName(), 0)
	if err := p.startAs(&variant{command: in.storm.OtherVersion}); err != nil {
		return err
	}
	in.Wait(ctx, in.For)
	started := false
	if err := p.history(func(e *record.Event) error {
		started = started || e.Kind == record.Started
		return nil
	}); err == nil && started {
		in.Bites()
	}
	if err := p.Terminate(ctx); err != nil {
		return err
	}
	in.End()
	return p.Start()
}
