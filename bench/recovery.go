package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"sync"
	"time"

	"github.com/leaseq/leaseq/internal/childproc"
)

// measureRecovery measures how long the jobs of a worker process wait that was ended with SIGKILL: from the expiry of
// their leases, as it is stored, until another worker starts them; and from the kill.
func measureRecovery(ctx context.Context, b *bench, _ int) error {
	plan := b.plan.recovery
	if plan.jobs == 0 {
		return nil
	}
	variants := []Options{{Fast: true}}
	if plan.usual {
		variants = b.variants()
	}
	all := &starts{of: map[string]*recovery{}}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var tries sync.WaitGroup
	for i, lead := range plan.leads {
		tries.Go(func() {
			what := fmt.Sprintf("recovery, try %d", i+1)
			err := b.atOnce(ctx, what, variants, func(ctx context.Context, s *stand) error {
				leaser, ok := s.System.(Leaser)
				if !ok {
					return nil
				}
				return recoverOnce(ctx, s, leaser, lead, all)
			})
			if err != nil {
				cancel(err)
			}
		})
	}
	tries.Wait()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	for _, r := range all.of {
		r.stand.add("recovery_p50", percentile(r.afterExpiry, 50))
		r.stand.add("recovery_max", percentile(r.afterExpiry, 100))
		r.stand.add("recovery_from_kill_p50", percentile(r.afterKill, 50))
		r.stand.add("recovery_from_kill_max", percentile(r.afterKill, 100))
	}
	return nil
}

// starts are those of all tries, by system and settings.
type starts struct {
	mu sync.Mutex
	of map[string]*recovery
}

// A recovery is the starts after kills, in ms.
type recovery struct {
	stand                  *stand
	afterExpiry, afterKill []float64
}

// recoverOnce is one try: a victim holds all jobs, a survivor has nothing to do for a while, the victim is killed.
func recoverOnce(ctx context.Context, s *stand, leaser Leaser, lead time.Duration, all *starts) (err error) {
	victim, err := startVictim(s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, victim.Kill()) }()
	ids, err := enqueueNamed(ctx, s, s.bench.plan.recovery.jobs)
	if err != nil {
		return err
	}
	if err := waitHeld(ctx, leaser, victim, ids); err != nil {
		return err
	}

	var mu sync.Mutex
	again := map[string]time.Time{}
	left := newCountdown(len(ids))
	w := begin(ctx, s, len(ids), func(_ context.Context, payload []byte) {
		id, at := string(bytes.TrimRight(payload, "x")), time.Now()
		mu.Lock()
		defer mu.Unlock()
		if _, found := again[id]; !found {
			again[id] = at
			left.count()
		}
	})
	defer func() { err = errors.Join(err, w.stop()) }()
	if err := w.rest(ctx, lead); err != nil {
		return err
	}
	mu.Lock()
	early := len(again)
	mu.Unlock()
	if early > 0 {
		return errors.New("jobs were started again while their worker lived")
	}
	killed := time.Now()
	if err := victim.Kill(); err != nil {
		return err
	}
	expiries, err := leaser.Leases(ctx, ids)
	if err != nil {
		return err
	}
	if err := w.wait(ctx, left.all); err != nil {
		return err
	}
	mu.Lock()
	defer mu.Unlock()
	all.add(s, again, expiries, killed)
	return nil
}

func (all *starts) add(s *stand, again, expiries map[string]time.Time, killed time.Time) {
	all.mu.Lock()
	defer all.mu.Unlock()
	key := fmt.Sprint(s.Name(), s.options.Fast)
	r := all.of[key]
	if r == nil {
		r = &recovery{stand: s}
		all.of[key] = r
	}
	for id, at := range again {
		r.afterKill = append(r.afterKill, float64(at.Sub(killed))/1e6)
		if expiry, ok := expiries[id]; ok {
			r.afterExpiry = append(r.afterExpiry, float64(at.Sub(expiry))/1e6)
		}
	}
}

// startVictim starts this program as a worker.
func startVictim(s *stand) (*childproc.Process, error) {
	args := []string{"-worker", s.Name(), "-addr", s.server.Addr(), "-concurrency", fmt.Sprint(s.bench.plan.recovery.jobs)}
	if s.options.Fast {
		args = append(args, "-fast")
	}
	return childproc.Start(exec.Command(s.bench.program, args...))
}

// enqueueNamed stores jobs whose payloads begin with their IDs.
func enqueueNamed(ctx context.Context, s *stand, n int) (ids []string, err error) {
	for i := range n {
		id := fmt.Sprintf("job-%d", i)
		payload := newPayload()
		copy(payload, id)
		if err := s.Enqueue(ctx, []Job{{ID: id, Payload: payload}}); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// waitHeld waits until all jobs are held.
func waitHeld(ctx context.Context, leaser Leaser, victim *childproc.Process, ids []string) error {
	for {
		held, err := leaser.Leases(ctx, ids)
		if err != nil || len(held) == len(ids) {
			return err
		}
		if victim.Ended() {
			return fmt.Errorf("the worker process has ended: %s: %s", victim.How(), victim.Said())
		}
		if err := sleep(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// beVictim is what the process does that is going to be killed: it holds all jobs that it gets.
func beVictim(ctx context.Context, s settings) error {
	chosen, err := choose([]string{s.worker})
	if err != nil {
		return err
	}
	system := chosen[0]()
	if err := system.Open(ctx, s.addr, Options{Fast: s.fast}); err != nil {
		return err
	}
	err = system.Work(ctx, s.concurrency, func(ctx context.Context, _ []byte) { <-ctx.Done() })
	return errors.Join(err, system.Close(context.WithoutCancel(ctx)))
}
