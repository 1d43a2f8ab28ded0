package chaos

import (
	"context"
	"errors"
	"hash/fnv"
	"runtime"
	"time"

	"github.com/leaseq/leaseq/reliable"
)

var errOnPurpose = errors.New("on purpose")

// builtIn is the default Worker: its handlers succeed, fail, give back, give up, panic and hang, as the job's kind says.
func builtIn(ctx context.Context, w *Worker) error {
	q, err := reliable.New(w.Client(), w.Queue(), w.QueueOptions())
	if err != nil {
		return err
	}
	o := w.ConsumerOptions()
	o.JobTimeout = 3 * w.opts.Lease / 2
	c, err := reliable.NewConsumer(q, reliable.HandlerFunc(func(ctx context.Context, job *reliable.Job) error {
		return handle(ctx, job, w.opts.Lease)
	}), o)
	if err == nil {
		err = c.Run(ctx)
	}
	var drain *reliable.DrainError
	if errors.As(err, &drain) { // Redis was away: what the leases of these jobs cost, the check says
		err = nil
	}
	over, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_ = q.Close(over) // its sessions are trimmed where Redis is away
	return err
}

// handle is one start. A job that has been started a few times, or redriven, ends well, so that a run has an end.
func handle(ctx context.Context, job *reliable.Job, lease time.Duration) error {
	h := fnv.New32a()
	_, _ = h.Write([]byte(job.ID))
	mark := time.Duration(h.Sum32() % 1000) // the same for each start of a job
	rest(ctx, mark*25*time.Microsecond)
	kind := job.Kind
	if job.Redrives > 0 || job.Attempt > 3 {
		kind = "work"
	}
	switch kind {
	case "slow":
		rest(ctx, lease/2+lease*mark/1000)
	case "fail":
		return errOnPurpose
	case "retry-after":
		return reliable.RetryAfter(mark*300*time.Microsecond, errOnPurpose)
	case "snooze":
		if time.Since(job.EnqueuedAt) < lease {
			return reliable.ReleaseAfter(100*time.Millisecond+mark*300*time.Microsecond, errOnPurpose)
		}
	case "discard":
		return reliable.Discard(errOnPurpose)
	case "panic":
		panic(errOnPurpose)
	case "goexit":
		runtime.Goexit()
	case "hang":
		if job.Attempt == 1 {
			<-ctx.Done()
		}
	case "deaf":
		if job.Attempt == 1 {
			<-ctx.Done()
			rest(context.WithoutCancel(ctx), lease+lease/2) // its lease runs out meanwhile
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

func rest(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
