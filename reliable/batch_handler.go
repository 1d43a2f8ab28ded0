package reliable

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// DefaultBatchWait is how long the first job of a batch waits for the others if BatchOptions does not say.
	DefaultBatchWait = 5 * time.Millisecond

	maxHandlerBatch = 1000
	maxBatchWait    = time.Minute
)

// BatchOptions are the settings of one kind that is handled in batches. nil and the zero value are the defaults.
type BatchOptions struct {
	// Wait is how long the first job of a batch waits for the others, up to 1 minute. A full batch does not wait. Default
	// 5 ms.
	Wait time.Duration
	// Timeout is how long one run of a job of this kind may take, its waiting included, as in [HandleOptions].
	Timeout time.Duration
}

func (o *BatchOptions) orDefaults() (BatchOptions, error) {
	var opts BatchOptions
	if o != nil {
		opts = *o
	}
	var errs []error
	if opts.Wait < 0 || opts.Wait > maxBatchWait {
		errs = append(errs, fmt.Errorf("Wait is %v: want 0 (%v) to %v", opts.Wait, DefaultBatchWait, maxBatchWait))
	}
	if opts.Wait == 0 {
		opts.Wait = DefaultBatchWait
	}
	return opts, errors.Join(append(errs, (&HandleOptions{Timeout: opts.Timeout}).validate())...)
}

// HandleBatch adds a handler to mux that gets up to n jobs (1 to 1,000) of the kind that T names in one call: for work
// that is cheaper together, as one INSERT of a hundred rows. Each job still has its own lease, slot, middleware and
// outcome: fn returns an error for each job, in their order, and nil for all is nil. A slice of another length fails all
// of them, as do a panic and a Goexit of fn.
//
// A batch begins with what has come together when it is full, or when its first job has waited for Wait. Each job takes
// one of the Consumer's slots, so batches are as large as n only where Concurrency is at least n; a Consumer with less
// is refused. Batches of one kind may run side by side.
//
// fn's ctx ends when those of all its jobs have; [Job.Context] of one ends with its lease. It carries no job and no
// values. A job whose context ended while it waited is not in the batch, and one whose payload does not decode neither:
// see [BadPayloadError].
//
// The error names everything that is wrong, as that of [Handle]. After an error mux is as it was.
func HandleBatch[T Kinder](mux *Mux, n int, fn func(ctx context.Context, jobs []*Job, payloads []T) []error, o *BatchOptions) error {
	var errs []error
	if mux == nil {
		errs = append(errs, errors.New("mux is nil: want one made by NewMux"))
	}
	if fn == nil {
		errs = append(errs, errors.New("fn is nil: want a function"))
	}
	if n < 1 || n > maxHandlerBatch {
		errs = append(errs, fmt.Errorf("batches of %d jobs: want 1 to %d", n, maxHandlerBatch))
	}
	opts, wrong := o.orDefaults()
	kind, err := kindOf[T]()
	if err := errors.Join(append(errs, wrong, err)...); err != nil {
		return fmt.Errorf("reliable.HandleBatch: %w", err)
	}
	b := &batcher[T]{fn: fn, most: n, wait: opts.Wait}
	if err := mux.add(kind, route{handler: b.handle, timeout: opts.Timeout, batch: n}); err != nil {
		return fmt.Errorf("reliable.HandleBatch: %w", err)
	}
	return nil
}

// batcher gathers the jobs of one kind.
type batcher[T any] struct {
	fn   func(ctx context.Context, jobs []*Job, payloads []T) []error
	most int
	wait time.Duration

	mu   sync.Mutex
	open *gathering[T] // nil: the next job begins one
}

// gathering is one batch. The goroutine of its first job runs it; the others wait for that.
type gathering[T any] struct {
	ctxs     []context.Context
	jobs     []*Job
	payloads []T
	errs     []error
	full     chan struct{}
	done     chan struct{}
}

func (b *batcher[T]) handle(ctx context.Context, job *Job) error {
	payload, err := decodeJob[T](job)
	if err != nil {
		return err
	}
	g, place := b.join(ctx, job, payload)
	if place == 0 {
		b.lead(ctx, g)
	}
	<-g.done
	return g.errs[place]
}

func (b *batcher[T]) join(ctx context.Context, job *Job, payload T) (g *gathering[T], place int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open == nil {
		b.open = &gathering[T]{full: make(chan struct{}), done: make(chan struct{})}
	}
	g, place = b.open, len(b.open.jobs)
	g.ctxs, g.jobs, g.payloads = append(g.ctxs, ctx), append(g.jobs, job), append(g.payloads, payload)
	if len(g.jobs) == b.most {
		b.open = nil
		close(g.full)
	}
	return g, place
}

// lead waits until the batch begins, and runs it.
func (b *batcher[T]) lead(ctx context.Context, g *gathering[T]) {
	timer := time.NewTimer(b.wait)
	defer timer.Stop()
	select {
	case <-g.full:
	case <-timer.C:
	case <-ctx.Done():
	}
	b.mu.Lock()
	if b.open == g {
		b.open = nil
	}
	b.mu.Unlock()
	g.errs = make([]error, len(g.jobs))
	defer close(g.done)
	var there []int // the places of those whose contexts have not ended
	for i, ctx := range g.ctxs {
		if ctx.Err() != nil {
			g.errs[i] = context.Cause(ctx)
			continue
		}
		there = append(there, i)
	}
	if len(there) > 0 {
		b.run(g, there)
	}
}

// run calls fn for the jobs at some places, and gives each its error. It does not return if fn calls runtime.Goexit.
func (b *batcher[T]) run(g *gathering[T], there []int) {
	jobs, payloads := make([]*Job, len(there)), make([]T, len(there))
	for i, place := range there {
		jobs[i], payloads[i] = g.jobs[place], g.payloads[place]
	}
	ctx, cancel := g.context(there)
	defer cancel()
	failed := func(err error) {
		for _, place := range there {
			g.errs[place] = err
		}
	}
	returned := false
	defer func() {
		if returned {
			return
		}
		if value := recover(); value != nil {
			failed(panicked(value))
			return
		}
		failed(exited())
	}()
	errs := b.fn(ctx, jobs, payloads)
	returned = true
	if errs != nil && len(errs) != len(jobs) {
		failed(fmt.Errorf("the handler of the batch returned %d errors for %d jobs: want one for each, or nil", len(errs), len(jobs)))
		return
	}
	for i := range errs {
		g.errs[there[i]] = errs[i]
	}
}

// context ends when those of all the jobs at some places have, with the cause of the last.
func (g *gathering[T]) context(there []int) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	var left atomic.Int64
	left.Store(int64(len(there)))
	stops := make([]func() bool, len(there))
	for i, place := range there {
		of := g.ctxs[place]
		stops[i] = context.AfterFunc(of, func() {
			if left.Add(-1) == 0 {
				cancel(context.Cause(of))
			}
		})
	}
	return ctx, func() {
		for _, stop := range stops {
			stop()
		}
		cancel(context.Canceled)
	}
}
