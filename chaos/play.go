package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/leaseq/leaseq/chaos/record"
	"github.com/leaseq/leaseq/internal/keys"
)

// The phases of a run.
const (
	phaseStorm = "storm" // faults come
	phaseCalm  = "calm"  // none does, and the queue must catch up
	phaseDrain = "drain" // no job comes any more
	phaseCheck = "check"
)

// drainBound is how long beyond Duration the queue may take to be empty when neither jobs nor faults come.
const drainBound = 7 * time.Second

// play goes through the phases up to the drained queue.
func (s *storm) play(ctx context.Context) error {
	ctx, s.void = context.WithCancelCause(ctx)
	defer s.void(nil)
	usable := s.usable()
	schedule := s.Schedule
	if schedule == nil {
		schedule = s.makeSchedule(usable)
	}
	s.result.Schedule = schedule
	for _, p := range s.posts {
		if err := p.Start(); err != nil {
			return fmt.Errorf("chaos: %w", err)
		}
	}
	s.awaitWorkers(ctx) // a fault that comes before there is anybody to meet shows nothing
	s.began = time.Now()
	s.follow.begin(s.began)
	background, stop := context.WithCancel(ctx)
	defer stop()
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { s.keepClock(background) })
	all.Go(func() { s.watchGraces(background) })
	all.Go(func() {
		if err := s.follow.run(background, s.report); err != nil {
			s.problem("%v", err)
		}
	})
	defer stop()

	jobs, noMoreJobs := context.WithCancel(ctx)
	defer noMoreJobs()
	produced := make(chan struct{})
	go func() { defer close(produced); s.traffic.run(jobs) }()
	s.enter(phaseStorm)
	s.inject(ctx, schedule, usable)
	s.awaitWorkers(ctx) // a killed one is not healed before its successor works
	s.enter(phaseCalm)
	s.catchUp(ctx)
	rest := time.NewTimer(time.Until(s.began.Add(s.Duration - s.last)))
	defer rest.Stop()
	select {
	case <-rest.C:
	case <-ctx.Done():
	}
	s.enter(phaseDrain)
	noMoreJobs()
	if ctx.Err() == nil {
		s.drain(ctx)
	}
	<-produced
	if ctx.Err() != nil {
		return fmt.Errorf("chaos: the run was interrupted after %v: %w", time.Since(s.began).Round(time.Second), context.Cause(ctx))
	}
	s.dismiss(ctx)
	return s.now(ctx)
}

// awaitBound is how long workers may take to begin before the run goes on without them: some seconds, where several start
// beside other work.
const awaitBound = 10 * time.Second

// awaitWorkers returns when all workers that were started have opened their histories.
func (s *storm) awaitWorkers(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, awaitBound)
	defer cancel()
	for _, p := range s.posts {
		if p.alive() {
			s.follow.await(ctx, p.Name(), awaitBound)
		}
	}
}

// dismiss ends all workers in order, all at once.
func (s *storm) dismiss(ctx context.Context) {
	var all sync.WaitGroup
	for _, p := range s.posts {
		if !p.alive() {
			continue
		}
		all.Go(func() {
			if err := p.Terminate(ctx); err != nil {
				s.problem("%v", err)
			}
		})
	}
	all.Wait()
}

func (s *storm) enter(phase string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.phase = phase
	s.Logger.Info("chaos", "phase", phase, "after", time.Since(s.began).Round(time.Millisecond))
}

// calming reports whether faults have ended.
func (s *storm) calming() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.phase == phaseCalm
}

// usable are the faults that can be made here. The others are named in the result.
func (s *storm) usable() []Fault {
	site := &Site{storm: s}
	var out []Fault
	for _, f := range s.Faults {
		count := FaultCount{Name: f.Name, What: f.What, Row: f.Row}
		if f.Available != nil {
			if err := f.Available(site); err != nil {
				count.Unavailable = err.Error()
			}
		}
		if count.Unavailable == "" {
			out = append(out, f)
		}
		s.result.Faults = append(s.result.Faults, count)
	}
	return out
}

// keepClock notes the server's time twice a second, so that the harness' times can be compared with it.
func (s *storm) keepClock(ctx context.Context) {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			call, cancel := context.WithTimeout(ctx, time.Second)
			_ = s.now(call) // not while the server is away
			cancel()
		}
	}
}

// watchGraces notes when the sweepers begin to spare holders after a gap between sweeps, which the partition's keys tell.
func (s *storm) watchGraces(ctx context.Context) {
	partition, err := keys.New(s.Prefix, s.Queue, 0)
	if err != nil {
		return // it was checked before
	}
	tick := time.NewTicker(s.Lease / 8)
	defer tick.Stop()
	last := int64(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		call, cancel := context.WithTimeout(ctx, time.Second)
		until, err1 := s.server.admin.HGet(call, partition.Key("sweep"), "grace").Int64()
		now, err2 := s.server.admin.Time(call).Result()
		cancel()
		if left := until - now.UnixMilli(); err1 == nil && err2 == nil && until != last && left > 0 {
			s.rec.Swept(record.Sweep{Grace: time.Duration(left) * time.Millisecond})
			last = until
		}
	}
}

// inject plays the schedule, lane by lane, and returns when its last fault is healed.
func (s *storm) inject(ctx context.Context, schedule *Schedule, faults []Fault) {
	ctx, cancel := context.WithDeadline(ctx, s.began.Add(s.Duration-s.calm-s.last))
	defer cancel()
	var all sync.WaitGroup
	for _, lane := range lanes {
		all.Go(func() {
			for i := range schedule.Faults {
				planned := &schedule.Faults[i]
				at := slices.IndexFunc(faults, func(f Fault) bool { return f.Name == planned.Name })
				if planned.Lane != lane || at < 0 {
					continue
				}
				wait := time.NewTimer(time.Until(s.began.Add(time.Duration(planned.AtMS) * time.Millisecond)))
				select {
				case <-ctx.Done():
					wait.Stop()
					return
				case <-wait.C:
					s.injectOne(ctx, &faults[at], planned)
				}
			}
		})
	}
	all.Wait()
	<-ctx.Done()
}

func (s *storm) injectOne(ctx context.Context, f *Fault, planned *Planned) {
	in := &Injection{
		Site: &Site{storm: s}, Fault: f, For: time.Duration(planned.ForMS) * time.Millisecond,
		Rand: rand.New(rand.NewPCG(s.Seed, planned.Pick)), planned: *planned,
	}
	s.mark(f.Name, 1)
	begin := time.Since(s.began)
	err := f.Inject(ctx, in)
	in.End()
	s.mark(f.Name, -1)
	if err != nil && !errors.Is(err, ErrNoPost) && ctx.Err() == nil {
		s.void(fmt.Errorf("the fault %s: %w", f.Name, err))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.result.fault(f.Name)
	c.Times++
	if in.bit.Load() {
		c.Bit++
		s.result.Windows = append(s.result.Windows, Window{Name: f.Name, FromMS: begin.Milliseconds(), ToMS: time.Since(s.began).Milliseconds()})
	}
}

func (s *storm) mark(name string, by int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.under[name] += by; s.under[name] == 0 {
		delete(s.under, name)
	}
}

// overdue counts jobs that are due for longer than 250 ms, and leases that ran out longer ago.
func (s *storm) overdue(ctx context.Context) (due, expired int64, err error) {
	partition, err := keys.New(s.Prefix, s.Queue, 0)
	if err != nil {
		return 0, 0, err
	}
	now, err := s.server.admin.Time(ctx).Result()
	if err != nil {
		return 0, 0, err
	}
	before := fmt.Sprint(now.Add(-prompt).UnixMilli())
	if due, err = s.server.admin.ZCount(ctx, partition.Key("due"), "-inf", before).Result(); err != nil {
		return 0, 0, err
	}
	expired, err = s.server.admin.ZCount(ctx, partition.Key("processing"), "-inf", before).Result()
	return due, expired, err
}

// catchUp measures when nothing is overdue any more after the last fault, the start of who takes a killed worker's place
// included: until then nobody sweeps, and from then on the holders may be spared for a lease. Before the calm ends all
// leases that had run out must have been taken, at some moment. How long it takes to work off the jobs that have heaped up,
// beside those that come, is the machine's; that they are is what the drain demands.
func (s *storm) catchUp(ctx context.Context) {
	began := time.Now()
	end := s.began.Add(s.Duration - s.last)
	if whole := began.Add(s.calm); end.Before(whole) {
		end = whole // on a busy machine the last fault took its time to be healed
	}
	ctx, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	var late int64
	var failed error
	swept := false
	for !s.quiet(ctx, func(ctx context.Context) (int64, error) {
		due, expired, err := s.overdue(ctx)
		if err == nil {
			late, swept = expired, swept || expired == 0
		} else if ctx.Err() == nil {
			failed = err
		}
		return due + expired, err
	}) {
		if ctx.Err() == nil {
			continue
		}
		if !swept {
			s.problem("in %v after the last fault the leases that had run out were never all taken: at last there were %d (last failed look: %v)", time.Since(began).Round(time.Millisecond), late, failed)
		}
		return
	}
	s.result.QuietMS = time.Since(began).Milliseconds()
}

// quiet asks once, and waits a little before it says no.
func (s *storm) quiet(ctx context.Context, ask func(context.Context) (int64, error)) bool {
	if n, err := ask(ctx); err == nil && n == 0 {
		return true
	}
	wait := time.NewTimer(20 * time.Millisecond)
	defer wait.Stop()
	select {
	case <-ctx.Done():
	case <-wait.C:
	}
	return false
}

// drain waits until nothing is in processing, and nothing is due soon.
func (s *storm) drain(ctx context.Context) {
	soon := drainBound + s.last
	ctx, cancel := context.WithTimeout(ctx, soon)
	defer cancel()
	for !s.quiet(ctx, func(ctx context.Context) (int64, error) {
		partition, err := keys.New(s.Prefix, s.Queue, 0)
		if err != nil {
			return 0, err
		}
		now, err := s.server.admin.Time(ctx).Result()
		if err != nil {
			return 0, err
		}
		due, err := s.server.admin.ZCount(ctx, partition.Key("due"), "-inf", fmt.Sprint(now.Add(soon).UnixMilli())).Result()
		if err != nil {
			return 0, err
		}
		held, err := s.server.admin.ZCard(ctx, partition.Key("processing")).Result()
		return due + held, err
	}) {
		if ctx.Err() != nil {
			s.problem("the queue was not drained %v after the last job: %s", soon, s.left(context.WithoutCancel(ctx)))
			return
		}
	}
}

// left names some jobs that are due or in processing, with their scores.
func (s *storm) left(ctx context.Context) string {
	partition, err := keys.New(s.Prefix, s.Queue, 0)
	if err != nil {
		return err.Error()
	}
	text := ""
	for _, place := range []string{"due", "processing"} {
		jobs, err := s.server.admin.ZRangeWithScores(ctx, partition.Key(place), 0, 4).Result()
		text += fmt.Sprintf(" %s %v", place, jobs)
		if err != nil {
			return err.Error()
		}
	}
	now, err := s.server.admin.Time(ctx).Result()
	return fmt.Sprintf("%s at %d ms (%v)", text, now.UnixMilli(), err)
}

// report hands the progress to whoever asked for it.
func (s *storm) report() {
	if s.Progress == nil {
		return
	}
	s.Progress(s.progress())
}

func (s *storm) progress() Progress {
	s.follow.mu.Lock()
	p := s.follow.count
	s.follow.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	p.Phase, p.Elapsed, p.Total = s.phase, time.Since(s.began), s.Duration
	p.Outstanding = p.Enqueued - p.Acked - p.Dead
	for i := range s.result.Faults {
		p.Faults += s.result.Faults[i].Times
	}
	p.Kills, p.Stops = s.result.Kills, s.result.Stops
	for name := range s.under {
		p.Under = append(p.Under, name)
	}
	slices.Sort(p.Under)
	return p
}
