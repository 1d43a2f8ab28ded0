package main

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leaseq/leaseq/reliable"
)

// fastLease is the lease of the fast settings. Shorter ones can be set, down to 20 ms, but then a short pause of a busy
// worker costs its jobs.
const fastLease = time.Second

type leaseqSystem struct {
	rdb      *redis.Client
	queue    *reliable.Queue
	prefetch int
}

func (*leaseqSystem) Name() string { return "leaseq" }

func (*leaseqSystem) Settings() []Setting {
	return []Setting{
		{Name: "QueueOptions.Lease", Default: "15s", Fast: fastLease.String()},
		{Name: "ConsumerOptions.Concurrency", Default: "as measured", Why: "it is what is varied"},
		{Name: "ConsumerOptions.Prefetch", Default: "0", Why: "100 where a figure says so"},
		{Name: "ConsumerOptions.WakeFallback", Default: "1s"},
		{Name: "Item.Kind", Default: "bench", Why: "every job has one; the handler is called without a Mux"},
	}
}

func (s *leaseqSystem) Open(_ context.Context, addr string, o Options) error {
	s.rdb, s.prefetch = newClient(addr), o.Prefetch
	options := &reliable.QueueOptions{}
	if o.Fast {
		options.Lease = fastLease
	}
	var err error
	if s.queue, err = reliable.New(s.rdb, queueName, options); err != nil {
		_ = s.rdb.Close()
	}
	return err
}

// Enqueue uses the call for one job for one job: callers of it share round trips.
func (s *leaseqSystem) Enqueue(ctx context.Context, jobs []Job) error {
	if len(jobs) == 1 {
		_, err := s.queue.Enqueue(ctx, leaseqItem(jobs[0]))
		return err
	}
	items := make([]reliable.Item, len(jobs))
	for i, job := range jobs {
		items[i] = leaseqItem(job)
	}
	results, err := s.queue.EnqueueMany(ctx, items)
	if err != nil {
		return err
	}
	for _, result := range results {
		if result.Err != nil {
			return result.Err
		}
	}
	return nil
}

func leaseqItem(job Job) reliable.Item {
	return reliable.Item{Kind: "bench", Payload: job.Payload, ID: job.ID, Delay: job.Delay}
}

func (*leaseqSystem) Batches() {}

func (*leaseqSystem) Prefetches() {}

func (s *leaseqSystem) Work(ctx context.Context, concurrency int, handle Handler) error {
	handler := reliable.HandlerFunc(func(ctx context.Context, job *reliable.Job) error {
		handle(ctx, job.Payload)
		return nil
	})
	consumer, err := reliable.NewConsumer(s.queue, handler, &reliable.ConsumerOptions{Concurrency: concurrency, Prefetch: s.prefetch})
	if err != nil {
		return err
	}
	return consumer.Run(ctx)
}

func (s *leaseqSystem) Leases(ctx context.Context, ids []string) (map[string]time.Time, error) {
	infos, err := s.queue.Inspect(ctx, ids...)
	if err != nil {
		return nil, err
	}
	leases := map[string]time.Time{}
	for _, info := range infos {
		if info.Place == reliable.Processing {
			leases[info.ID] = info.At
		}
	}
	return leases, nil
}

func (s *leaseqSystem) Close(ctx context.Context) error {
	err := s.queue.Close(ctx)
	if closeErr := s.rdb.Close(); err == nil {
		err = closeErr
	}
	return err
}
