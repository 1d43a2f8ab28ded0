package main

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"
)

// growDue measures all calls while more and more jobs wait.
func (r *runner) growDue(ctx context.Context) (err error) {
	r.document.Due, r.document.Loads, err = r.grow(ctx, r.plan.due, (*crowd).fill, (*crowd).duePlace)
	return err
}

// growProcessing measures them while more and more jobs are worked on.
func (r *runner) growProcessing(ctx context.Context) (err error) {
	var loads []load
	r.document.Processing, loads, err = r.grow(ctx, r.plan.processing, (*crowd).hold, (*crowd).processingPlace)
	for _, l := range loads {
		r.document.Held = append(r.document.Held, held{Size: l.Size, Bytes: l.Bytes})
	}
	return err
}

// grow measures at each size on one server, which is filled up in between.
func (r *runner) grow(ctx context.Context, sizes []int, fill func(*crowd, context.Context, *meter, int) error, keys func(*crowd) (place, error)) (costs []cost, loads []load, err error) {
	c, err := newCrowd(ctx, payloadSize, idOf(idSize))
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, c.close(ctx)) }()
	r.document.Redis = c.server.version
	empty, err := c.server.number(ctx, "memory", "used_memory")
	if err != nil {
		return nil, nil, err
	}
	p, err := keys(c)
	if err != nil {
		return nil, nil, err
	}
	for _, size := range sizes {
		l, err := c.fillUp(ctx, size, fill)
		if err != nil {
			return costs, loads, err
		}
		used, err := c.server.number(ctx, "memory", "used_memory")
		if err != nil {
			return costs, loads, err
		}
		l.Bytes = rounded((used-empty)/float64(size) - payloadSize)
		loads = append(loads, l)
		at, err := r.measure(ctx, c, p, size, r.plan.batches)
		if err != nil {
			return costs, loads, err
		}
		costs = append(costs, at...)
		r.say("  %10d jobs, loaded at %.0f a second", size, l.Rate)
	}
	return costs, loads, nil
}

// measure makes so many rounds of each number of jobs.
func (r *runner) measure(ctx context.Context, c *crowd, p place, size int, batches []int) ([]cost, error) {
	m, err := newMeter(ctx, c.server)
	if err != nil {
		return nil, err
	}
	round := func(batch int) error {
		if err := c.round(ctx, m, batch); err != nil {
			return err
		}
		return c.control(ctx, m, p, batch)
	}
	for range 3 { // sessions are opened, and memory is made warm
		if err := round(slices.Max(batches)); err != nil {
			return nil, err
		}
	}
	m.forget()
	for range r.plan.rounds {
		for _, batch := range batches { // in turns, so that a slow minute of the machine is nobody's in particular
			if err := round(batch); err != nil {
				return nil, err
			}
		}
	}
	return m.summaries(size, batches), nil
}

// A load is how a queue was filled.
type load struct {
	Size   int     `json:"size"`
	Rate   float64 `json:"jobs_per_s"`
	Calls  int     `json:"calls"` // of 1,000 jobs
	Slow   int     `json:"calls_over_limit"`
	Median float64 `json:"own_ms"`     // that a call took of the server itself
	Worst  float64 `json:"slowest_ms"` // the same; 0: no call was measured by itself
	Bytes  float64 `json:"bytes_beside_payload"`
}

// fillUp fills the queue up, and tells of calls that were slow meanwhile: a table that has to grow is moved then.
func (c *crowd) fillUp(ctx context.Context, size int, fill func(*crowd, context.Context, *meter, int) error) (load, error) {
	m, err := newMeter(ctx, c.server)
	if err != nil {
		return load{}, err
	}
	before, at := c.loaded, time.Now()
	if err := fill(c, ctx, m, size); err != nil {
		return load{}, err
	}
	l := load{Size: size, Rate: math.Floor(float64(size-before) / time.Since(at).Seconds())}
	var took []float64
	for _, s := range m.samples[callKey{opLoad, loadBatch}] {
		own := s.own()
		took = append(took, own.Seconds()*1e3)
		if own > limit {
			l.Slow++
		}
	}
	if l.Calls = len(took); l.Calls > 0 {
		l.Median, l.Worst = rounded(percentile(took, 50)), rounded(slices.Max(took))
	}
	return l, nil
}
