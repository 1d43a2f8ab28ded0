package chaos

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/leaseq/leaseq/chaos/record"
	"github.com/leaseq/leaseq/internal/childproc"
	"github.com/leaseq/leaseq/internal/clockshift"
	"github.com/leaseq/leaseq/internal/keys"
)

// clockFaults are those of the wall clocks of workers and of the server: rows 23 and 22.
func clockFaults() []Fault {
	return []Fault{
		{
			Name: "worker-clock", Row: 23, Lane: Crew,
			What:      "a worker's wall clock is wrong by up to an hour, and jumps",
			Leases:    [2]float64{0.5, 1.5},
			Available: func(*Site) error { return clockshift.Available() }, Inject: shiftWorker,
		},
		{
			Name: "clock-jump", Row: 22, Lane: Server, Early: true, Available: needShim,
			What:   "the server's clock is moved, forward by up to an hour, or back by up to a lease",
			Leases: [2]float64{0.2, 0.5}, Inject: jumpClock,
		},
	}
}

// skew is what a worker's clock is to be off by.
func (in *Injection) skew() time.Duration {
	by := time.Duration(60+in.Rand.IntN(3540)) * time.Second
	if in.Rand.IntN(2) == 0 {
		return -by
	}
	return by
}

// shiftWorker puts a worker with a wrong clock in the place of another, for a while.
func shiftWorker(ctx context.Context, in *Injection) error {
	p, err := in.Take(ctx, in.Rand, 0)
	if err != nil {
		return err
	}
	defer in.GiveBack(p)
	if err := p.Terminate(ctx); err != nil {
		return err
	}
	skew := in.skew()
	in.Begin(p.nextName(), skew, record.Skews)
	var clock *clockshift.Clock
	err = p.startAs(&variant{start: func(cmd *exec.Cmd) (*childproc.Process, error) {
		return childproc.StartBy(cmd, func() (err error) {
			clock, err = clockshift.Start(cmd, skew)
			return err
		})
	}})
	if err != nil {
		return err
	}
	defer clock.Close()
	if err := in.showsSkew(ctx, p, skew); err != nil {
		return err
	}
	for range 3 {
		in.Wait(ctx, in.For/3)
		if err := clock.Set(in.skew()); err != nil {
			return err
		}
	}
	if err := p.Terminate(ctx); err != nil {
		return err
	}
	in.End()
	return p.Start()
}

// skewBound is how long a worker may take to its first line.
const skewBound = 10 * time.Second

// showsSkew waits for the first line of a worker's history, which must show the wrong time of day.
func (in *Injection) showsSkew(ctx context.Context, p *Post, skew time.Duration) error {
	off, told := time.Duration(0), false
	in.Until(ctx, skewBound, func() bool {
		err := p.history(func(e *record.Event) error {
			off, told = time.Until(time.UnixMicro(e.Wall)), true
			return errEnough
		})
		return err == nil && told
	})
	if !told {
		return nil // it is not even started: the fault had no effect
	}
	if (off - skew).Abs() > 30*time.Second {
		return fmt.Errorf("the clock of worker %s is off by %v, and was to be by %v", p.Name(), off, skew)
	}
	in.Bites()
	return nil
}

// history reads the history of the process that works there now.
func (p *Post) history(each func(*record.Event) error) error {
	return p.storm.historyOf(p.Name(), each)
}

// historyOf reads what one process has written so far. An each that has seen enough returns errEnough.
func (s *storm) historyOf(name string, each func(*record.Event) error) error {
	_, err := record.File(filepath.Join(s.histories, name+".jsonl")).Each(each)
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// nextName is that of the next process there.
func (p *Post) nextName() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return fmt.Sprintf("worker-%d.%d", p.number, p.count+1)
}

// jump is how far the server's clock is to be moved.
func (in *Injection) jump() time.Duration {
	switch in.Rand.IntN(4) {
	case 0:
		return time.Duration(1+in.Rand.IntN(60)) * time.Minute
	case 1:
		return in.Lease()/2 + time.Duration(in.Rand.Int64N(int64(3*in.Lease())))
	}
	return -(in.Lease()/4 + time.Duration(in.Rand.Int64N(int64(3*in.Lease()/4))))
}

// jumpClock moves the server's clock. It stays moved: the next jump comes on top. After a jump back it lasts until the
// clock has passed the highest fence, so that fences are times again.
func jumpClock(ctx context.Context, in *Injection) error {
	partition, err := keys.New(in.Prefix(), in.Queue(), 0)
	if err != nil {
		return err
	}
	gear, by := &in.storm.gear, in.jump()
	before, err := in.Admin().Time(ctx).Result()
	if err != nil {
		return err
	}
	asked := time.Now()
	in.Begin("", by, record.Steps)
	if err := gear.shim.Shift(gear.shift + by); err != nil {
		return err
	}
	gear.shift += by
	after := context.WithoutCancel(ctx)
	shown, err := in.Admin().Time(after).Result()
	if err != nil {
		return err
	}
	if off := shown.Sub(before) - time.Since(asked) - by; off.Abs() < by.Abs()/2 {
		in.Bites()
	}
	moved := time.Now()
	in.Wait(ctx, in.For)
	if by > 0 {
		return nil
	}
	in.Until(after, -by+answerBound, func() bool {
		fence, err1 := in.Admin().Get(after, partition.Key("fence")).Int64()
		now, err2 := in.Admin().Time(after).Result()
		return err1 == nil && err2 == nil && now.UnixMicro() > fence && now.After(before) && time.Since(moved) > -by
	})
	return nil
}
