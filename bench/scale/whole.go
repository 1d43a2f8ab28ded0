package main

import (
	"bytes"
	"context"
	"errors"
	"math"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/leaseq/leaseq/reliable"
)

// A spending is what one job costs on both sides, from end to end, with everything that producers and consumers do.
type spending struct {
	Batch    int     `json:"batch,omitempty"`       // producers: jobs a call
	Handlers int     `json:"concurrency,omitempty"` // consumers
	Jobs     int     `json:"jobs"`
	Server   float64 `json:"server_us"` // CPU
	Client   float64 `json:"client_us"` // CPU; 0: not known
	Requests float64 `json:"requests"`  // round trips
	In       float64 `json:"in_bytes"`  // to the server
	Out      float64 `json:"out_bytes"` // from the server
}

// least is the cheapest of some tries, the one that was disturbed least.
func least(times int, try func() (spending, error)) (best spending, err error) {
	for i := range times {
		s, err := try()
		if err != nil {
			return s, err
		}
		if i == 0 || s.Server+s.Client < best.Server+best.Client {
			best = s
		}
	}
	return best, nil
}

// whole measures producers and consumers of package reliable, each on a server of its own.
func (r *runner) whole(ctx context.Context) error {
	r.document.Producers, r.document.Consumers = nil, nil
	for _, batch := range r.plan.calls {
		s, err := least(r.plan.again, func() (spending, error) { return r.produce(ctx, min(r.plan.work, 5_000*batch), batch) })
		if err != nil {
			return err
		}
		r.document.Producers = append(r.document.Producers, s)
	}
	for _, concurrency := range r.plan.concurrency {
		s, err := least(r.plan.again, func() (spending, error) {
			return r.consume(ctx, min(r.plan.work, 5_000*concurrency), concurrency)
		})
		if err != nil {
			return err
		}
		r.document.Consumers = append(r.document.Consumers, s)
		r.say("  concurrency %3d: %.1f µs of the server a job, %.1f of the client", concurrency, s.Server, s.Client)
	}
	return nil
}

// A bill is what was spent up to a moment.
type bill struct{ server, client, requests, in, out float64 }

func (s *server) bill(ctx context.Context) (b bill, err error) {
	for _, one := range []struct {
		section, name string
		to            *float64
		times         float64
	}{
		{"cpu", "used_cpu_user", &b.server, 1e6}, {"cpu", "used_cpu_sys", &b.server, 1e6},
		{"stats", "total_reads_processed", &b.requests, 1},
		{"stats", "total_net_input_bytes", &b.in, 1}, {"stats", "total_net_output_bytes", &b.out, 1},
	} {
		value, err := s.number(ctx, one.section, one.name)
		if err != nil {
			return b, err
		}
		*one.to += value * one.times
	}
	b.client = micros(clientCPU())
	return b, nil
}

// share is what each of n jobs has cost between two moments.
func share(before, after bill, n int) spending {
	each := func(a, b float64) float64 { return rounded((b - a) / float64(n)) }
	return spending{
		Jobs: n, Server: each(before.server, after.server), Client: each(before.client, after.client),
		Requests: math.Round((after.requests-before.requests)/float64(n)*1e4) / 1e4, In: each(before.in, after.in), Out: each(before.out, after.out),
	}
}

// withQueue opens a queue on a new server for a while.
func withQueue(ctx context.Context, do func(q *reliable.Queue, s *server) error) (err error) {
	s, err := startServer(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop(ctx)) }()
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr(), PoolSize: 32})
	defer func() { err = errors.Join(err, rdb.Close()) }()
	q, err := reliable.New(rdb, "scale", nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, q.Close(context.WithoutCancel(ctx))) }()
	return do(q, s)
}

// enqueueMany enqueues n jobs from one goroutine, so many a call.
func enqueueMany(ctx context.Context, q *reliable.Queue, n, batch int) error {
	payload := bytes.Repeat([]byte("x"), payloadSize)
	for from := 0; from < n; from += batch {
		items := make([]reliable.Item, min(batch, n-from))
		for i := range items {
			items[i] = reliable.Item{Kind: kind, Payload: payload}
		}
		results, err := q.EnqueueMany(ctx, items)
		for i := range results {
			err = errors.Join(err, results[i].Err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *runner) produce(ctx context.Context, n, batch int) (out spending, err error) {
	err = withQueue(ctx, func(q *reliable.Queue, s *server) error {
		if err := enqueueMany(ctx, q, batch, batch); err != nil { // connections and sessions are there
			return err
		}
		before, err := s.bill(ctx)
		if err != nil {
			return err
		}
		if err := enqueueMany(ctx, q, n, batch); err != nil {
			return err
		}
		after, err := s.bill(ctx)
		out = share(before, after, n)
		out.Batch = batch
		return err
	})
	return out, err
}

// consume measures one consumer whose handlers do nothing.
func (r *runner) consume(ctx context.Context, n, concurrency int) (out spending, err error) {
	err = withQueue(ctx, func(q *reliable.Queue, s *server) error {
		if err := enqueueMany(ctx, q, n, 256); err != nil {
			return err
		}
		working, stop := context.WithCancel(ctx)
		defer stop()
		var left atomic.Int64
		left.Store(int64(n))
		handler := reliable.HandlerFunc(func(context.Context, *reliable.Job) error {
			if left.Add(-1) == 0 {
				stop()
			}
			return nil
		})
		c, err := reliable.NewConsumer(q, handler, &reliable.ConsumerOptions{Concurrency: concurrency})
		if err != nil {
			return err
		}
		before, err := s.bill(ctx)
		if err != nil {
			return err
		}
		if err := c.Run(working); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		after, err := s.bill(ctx)
		out = share(before, after, n)
		out.Handlers = concurrency
		return err
	})
	return out, err
}
