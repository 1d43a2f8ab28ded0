package main

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

// How long the pop waits after it found nothing.
const (
	popPoll     = 100 * time.Millisecond
	popFastPoll = 10 * time.Millisecond
)

// popSystem is what a queue on Redis costs at the very least: it guarantees nothing. A job whose worker dies is gone.
type popSystem struct {
	rdb  *redis.Client
	poll time.Duration
}

var popKeys = []string{"pop:due", "pop:jobs"}

// popPut stores jobs: ID, due time in ms and payload in turn.
var popPut = redis.NewScript(`
for i = 1, #ARGV, 3 do
  redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 2])
  redis.call('ZADD', KEYS[1], ARGV[i + 1], ARGV[i])
end
return #ARGV / 3
`)

// popTake takes up to ARGV[2] jobs that are due at ARGV[1], in ms, and returns their payloads.
var popTake = redis.NewScript(`
local ids = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'LIMIT', 0, ARGV[2])
if #ids == 0 then return ids end
redis.call('ZREM', KEYS[1], unpack(ids))
local payloads = redis.call('HMGET', KEYS[2], unpack(ids))
redis.call('HDEL', KEYS[2], unpack(ids))
return payloads
`)

func (*popSystem) Name() string { return "pop" }

func (*popSystem) Settings() []Setting {
	return []Setting{
		{Name: "jobs a call", Default: "1", Why: "a loop of the simplest kind; each of its goroutines makes its own calls"},
		{Name: "poll when nothing is due", Default: popPoll.String(), Fast: popFastPoll.String(), Why: "one goroutine polls for all"},
		{Name: "IDs", Default: "UUIDs of version 4", Why: "as asynq's"},
	}
}

func (s *popSystem) Open(_ context.Context, addr string, o Options) error {
	s.rdb, s.poll = newClient(addr), popPoll
	if o.Fast {
		s.poll = popFastPoll
	}
	return nil
}

func (s *popSystem) Enqueue(ctx context.Context, jobs []Job) error {
	args := make([]any, 0, 3*len(jobs))
	for _, job := range jobs {
		id := job.ID
		if id == "" {
			id = uuid.NewString()
		}
		// A due time is rounded up, so that no job is early.
		due := time.Now().Add(job.Delay + time.Millisecond - 1).UnixMilli()
		if job.Delay == 0 {
			due = time.Now().UnixMilli()
		}
		args = append(args, id, strconv.FormatInt(due, 10), job.Payload)
	}
	return popPut.Run(ctx, s.rdb, popKeys, args...).Err()
}

func (*popSystem) Batches() {}

func (s *popSystem) Work(ctx context.Context, concurrency int, handle Handler) error {
	var idle sync.Mutex // whoever polls has it
	errs := make([]error, concurrency)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	for i := range concurrency {
		all.Go(func() {
			if errs[i] = s.loop(ctx, &idle, handle); errs[i] != nil {
				cancel()
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// loop works until ctx ends.
func (s *popSystem) loop(ctx context.Context, idle *sync.Mutex, handle Handler) error {
	for ctx.Err() == nil {
		payload, found, err := s.take(ctx)
		if err == nil && !found {
			payload, found, err = s.wait(ctx, idle)
		}
		if err != nil {
			return err
		}
		if found {
			handle(ctx, payload)
		}
	}
	return nil
}

// wait polls until there is a job or ctx ends, while no other goroutine does.
func (s *popSystem) wait(ctx context.Context, idle *sync.Mutex) (payload []byte, found bool, err error) {
	idle.Lock()
	defer idle.Unlock()
	for {
		payload, found, err = s.take(ctx)
		if err != nil || found {
			return payload, found, err
		}
		if sleep(ctx, s.poll) != nil {
			return nil, false, nil
		}
	}
}

// take takes one job. It is not broken off: what is taken is lost unless it is handled.
func (s *popSystem) take(ctx context.Context) (payload []byte, found bool, err error) {
	taken, err := popTake.Run(context.WithoutCancel(ctx), s.rdb, popKeys, time.Now().UnixMilli(), 1).StringSlice()
	if err != nil || len(taken) == 0 {
		return nil, false, err
	}
	return []byte(taken[0]), true, nil
}

func (s *popSystem) Close(context.Context) error { return s.rdb.Close() }
