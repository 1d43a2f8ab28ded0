package main

import (
	"context"
	"errors"
	"hash/fnv"
	"math/rand/v2"
	"time"

	"github.com/leaseq/leaseq/chaos"
	"github.com/leaseq/leaseq/reliable"
)

const lease = time.Second

// slack is what a busy machine may take longer: what a mutant does is worse.
const slack = 2 * time.Second

// storms are few and short: each has what some safeguards are for, and none has anything that is about one of them alone.
var storms = map[string]chaos.Options{
	// Workers are cut off, and the server stands still, for longer than a lease and longer than callers wait.
	"silent": {
		Lease: lease, Duration: 16 * time.Second, Workers: 4, Concurrency: 12, Rate: 20, Slack: slack / 4,
		Faults: append(lasting(2, 2.5, faults("cut-off")), faults("server-stop")...), Worker: napper, Job: naps,
	},
	// Replies are lost, and callers do not wait for long.
	"hasty": {
		Lease: lease, Duration: 10 * time.Second, Workers: 1, Concurrency: 16, Rate: 150,
		Faults: lasting(3, 4, faults("reply-drop")), Worker: hasty, Job: naps,
	},
	// Nothing goes wrong, and there is little to do: slots are free, and jobs are due at odd times.
	"idle": {
		Lease: lease, Duration: 12 * time.Second, Workers: 8, Concurrency: 1, Rate: 8, Profile: "delayed", Slack: slack / 4,
		Faults: []chaos.Fault{}, Worker: napper, Job: naps,
	},
}

// lasting makes faults last for so many leases.
func lasting(least, most float64, faults []chaos.Fault) []chaos.Fault {
	for i := range faults {
		faults[i].Leases = [2]float64{least, most}
	}
	return faults
}

func naps(int) (reliable.Kinder, *reliable.EnqueueOptions) { return nap{}, nil }

func faults(names ...string) []chaos.Fault {
	out, err := chaos.FaultsNamed(names...)
	if err != nil {
		panic(err)
	}
	return out
}

// A nap is a job that takes some leases now and then, and else no time.
type nap struct{}

func (nap) Kind() string { return "nap" }

func napper(ctx context.Context, w *chaos.Worker) error {
	q, err := reliable.New(w.Client(), w.Queue(), w.QueueOptions())
	if err != nil {
		return err
	}
	h := reliable.HandlerFunc(func(ctx context.Context, job *reliable.Job) error {
		hash := fnv.New32a()
		_, _ = hash.Write([]byte(job.ID))
		long := time.Duration(hash.Sum32() % 50)
		if long%5 == 0 {
			long = 2000 + 40*long
		}
		timer := time.NewTimer(long * lease / 1000)
		defer timer.Stop()
		select {
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	o := w.ConsumerOptions()
	o.WakeFallback = time.Minute // a job that waits for it has been forgotten
	c, err := reliable.NewConsumer(q, h, o)
	if err == nil {
		err = c.Run(ctx)
	}
	return errors.Join(err, q.Close(context.WithoutCancel(ctx)))
}

// hasty is a worker whose handlers enqueue a job each, wait for the answer for some milliseconds, and then for the truth.
func hasty(ctx context.Context, w *chaos.Worker) error {
	q, err := reliable.New(w.Client(), w.Queue(), w.QueueOptions())
	if err != nil {
		return err
	}
	c, err := reliable.NewConsumer(q, reliable.HandlerFunc(func(ctx context.Context, job *reliable.Job) error {
		if job.Kind != (nap{}).Kind() {
			return nil
		}
		brief, cancel := context.WithTimeout(ctx, time.Millisecond+rand.N(15*time.Millisecond))
		defer cancel()
		_, call, err := w.Recorder().Enqueue(brief, q, reliable.Item{ID: job.ID + "-more", Kind: "more"})
		var unknown *reliable.UnknownError
		if errors.As(err, &unknown) {
			_ = call.Resolve(ctx, unknown) // it is written down
		}
		return nil
	}), w.ConsumerOptions())
	if err == nil {
		err = c.Run(ctx)
	}
	return errors.Join(err, q.Close(context.WithoutCancel(ctx)))
}
