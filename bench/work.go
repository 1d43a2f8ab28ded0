package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// errEnded says that a system stopped working before it was told to.
var errEnded = errors.New("its Work has returned before its context ended")

// A work is a Work that is under way.
type work struct {
	cancel context.CancelFunc
	ended  chan struct{}
	err    error // once ended
}

// begin starts to work.
func begin(ctx context.Context, s *stand, concurrency int, handle Handler) *work {
	ctx, cancel := context.WithCancel(ctx)
	w := &work{cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(w.ended)
		w.err = s.Work(ctx, concurrency, handle)
	}()
	return w
}

// wait waits for done.
func (w *work) wait(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-w.ended:
		return errors.Join(errEnded, w.err)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// rest waits for a time.
func (w *work) rest(ctx context.Context, d time.Duration) error {
	passed := make(chan struct{})
	timer := time.AfterFunc(d, func() { close(passed) })
	defer timer.Stop()
	return w.wait(ctx, passed)
}

// stop ends the work.
func (w *work) stop() error {
	w.cancel()
	<-w.ended
	return w.err
}

// A countdown closes all when it was counted down to 0.
type countdown struct {
	left atomic.Int64
	all  chan struct{}
}

func newCountdown(n int) *countdown {
	c := &countdown{all: make(chan struct{})}
	c.left.Store(int64(n))
	return c
}

func (c *countdown) count() {
	if c.left.Add(-1) == 0 {
		close(c.all)
	}
}

// Sizes of what is enqueued.
const (
	payloadSize = 200
	batchSize   = 100
	producers   = 50 // goroutines that enqueue at once
)

// newPayload makes a payload of the size that all jobs have.
func newPayload() []byte {
	payload := make([]byte, payloadSize)
	for i := range payload {
		payload[i] = 'x'
	}
	return payload
}

// enqueue stores n jobs from several goroutines, so many a call. The jobs are divided up beforehand.
func enqueue(ctx context.Context, s System, n, goroutines, each int) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var all sync.WaitGroup
	for range goroutines {
		all.Go(func() {
			jobs := make([]Job, each)
			for i := range jobs {
				jobs[i].Payload = newPayload()
			}
			for {
				from := int(next.Add(int64(each))) - each
				if from >= n || ctx.Err() != nil {
					return
				}
				if err := s.Enqueue(ctx, jobs[:min(each, n-from)]); err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

// fill stores n jobs in the quickest way.
func fill(ctx context.Context, s System, n int) error {
	if _, ok := s.(Batcher); ok {
		return enqueue(ctx, s, n, 4, batchSize)
	}
	return enqueue(ctx, s, n, producers, 1)
}

// sleep waits until d has passed or ctx ends, which is an error.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
