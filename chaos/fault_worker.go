package chaos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/leaseq/leaseq/chaos/record"
	"github.com/leaseq/leaseq/internal/childproc"
)

// AllFaults are all that this package has.
func AllFaults() []Fault {
	var all []Fault
	for _, some := range [][]Fault{
		workerFaults(), linkFaults(), serverFaults(), crashFaults(), fullFaults(), keyFaults(), busyFaults(), clockFaults(), crewFaults(),
	} {
		all = append(all, some...)
	}
	return all
}

// FaultsNamed are those of AllFaults with these names. An unknown name is an error that lists the known ones.
func FaultsNamed(names ...string) ([]Fault, error) {
	all := AllFaults()
	var out []Fault
	for _, name := range names {
		found := false
		for _, f := range all {
			if f.Name == name {
				out, found = append(out, f), true
			}
		}
		if !found {
			known := ""
			for _, f := range all {
				known += "\n  " + f.Name + ": " + f.What
			}
			return nil, fmt.Errorf("chaos: no fault is named %q: want some of%s", name, known)
		}
	}
	return out, nil
}

func needSignals(*Site) error {
	if !childproc.Signals {
		return childproc.ErrNoSignals
	}
	return nil
}

// workerFaults are those of one worker process: rows 1 to 3.
func workerFaults() []Fault {
	return []Fault{
		{
			Name: "worker-kill", Row: 1, Lane: Kills, Weight: 6,
			What:   "a worker, or two, get SIGKILL while handlers run, and others are started in their place",
			Leases: [2]float64{0, 0.4}, Inject: killWorker,
		},
		{
			Name: "worker-stop", Row: 2, Lane: Freezes, Weight: 3,
			What:      "a worker stands still (SIGSTOP) for longer than its leases, and goes on (SIGCONT)",
			For:       [2]time.Duration{100 * time.Millisecond, 300 * time.Millisecond},
			Leases:    [2]float64{1, 1.6},
			Available: needSignals, Inject: stopWorker,
		},
		{
			Name: "worker-term", Row: 3, Lane: Kills,
			What:      "a worker gets SIGTERM, as in a deploy, drains, and another is started in its place",
			Available: needSignals, Inject: terminateWorker,
		},
	}
}

// killWorker kills a worker that is busy, in a larger crew as often two at once, and waits until the next ones live.
func killWorker(ctx context.Context, in *Injection) error {
	p, err := in.Take(ctx, in.Rand, 2)
	if err != nil {
		return err
	}
	posts := []*Post{p}
	if len(in.storm.posts) > 3 && in.Rand.IntN(2) == 0 {
		if another := in.storm.take(in.Rand, 2); another != nil {
			posts = append(posts, another)
		}
	}
	defer func() {
		for _, p := range posts {
			in.GiveBack(p)
		}
	}()
	if !in.Until(ctx, 2*in.Lease(), func() bool { return p.Busy() > 0 }) && ctx.Err() != nil {
		return nil
	}
	for _, p := range posts {
		in.Begin(p.Name(), 0, record.Dies)
		if err := p.Kill(); err != nil {
			return err
		}
		in.storm.countKill()
	}
	if slices.ContainsFunc(posts, func(p *Post) bool { return p.Busy() > 0 }) {
		in.Bites()
	}
	in.End()
	in.Wait(ctx, in.For)
	var errs []error
	for _, p := range posts {
		errs = append(errs, p.Start())
	}
	return errors.Join(errs...)
}

// stopWorker lets a worker stand still while it holds jobs.
func stopWorker(ctx context.Context, in *Injection) error {
	p, err := in.Take(ctx, in.Rand, 2)
	if err != nil {
		return err
	}
	defer in.GiveBack(p)
	in.Until(ctx, 2*in.Lease(), func() bool { return p.Busy() > 0 })
	in.Begin(p.Name(), 0, record.Freezes)
	if err := p.Freeze(); err != nil {
		return err
	}
	in.storm.countStop()
	busy := p.Busy()
	if busy > 0 {
		in.Bites()
	}
	in.Wait(ctx, in.For)
	return p.Thaw()
}

// terminateWorker has a worker end in order.
func terminateWorker(ctx context.Context, in *Injection) error {
	p, err := in.Take(ctx, in.Rand, 0)
	if err != nil {
		return err
	}
	defer in.GiveBack(p)
	in.Begin(p.Name(), 0)
	if err := p.Terminate(ctx); err != nil {
		return err
	}
	in.Bites()
	in.End()
	in.Wait(ctx, in.For)
	return p.Start()
}

func (s *storm) countKill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.result.Kills++
}

func (s *storm) countStop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.result.Stops++
}

var errNotOwn = errors.New("the server is not of the run's own")

func needOwnServer(s *Site) error {
	if s.storm.server.own == nil {
		return errNotOwn
	}
	return nil
}

func needLinks(s *Site) error {
	if s.storm.server.addr == "" {
		return errors.New("the connections are encrypted, or no TCP, and pass no proxy")
	}
	return nil
}
