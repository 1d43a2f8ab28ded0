package main

import (
	"context"
	"runtime/debug"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// asynqFastCheck is how often asynq looks for jobs with the fast settings.
const asynqFastCheck = 10 * time.Millisecond

// asynqLeases is where asynq keeps the leases of the queue called queueName.
const asynqLeases = "asynq:{bench}:lease"

type asynqSystem struct {
	rdb    *redis.Client
	client *asynq.Client
	fast   bool
}

func (*asynqSystem) Name() string { return "asynq" }

func (*asynqSystem) Settings() []Setting {
	return []Setting{
		{Name: "version", Default: asynqVersion()},
		{Name: "Config.Concurrency", Default: "as measured", Why: "it is what is varied"},
		{Name: "Config.Queues", Default: queueName + ": 1", Why: "one queue, as in the others"},
		{Name: "Config.TaskCheckInterval", Default: "1s", Fast: asynqFastCheck.String()},
		{Name: "Config.DelayedTaskCheckInterval", Default: "5s", Fast: asynqFastCheck.String()},
		{Name: "Config.RetryDelayFunc", Default: "15 to 45 s after the first failure", Fast: "0s"},
		{Name: "Config.LogLevel", Default: "error", Why: "starts and stops are not news here"},
		{Name: "Retention", Default: "off"},
		{Name: "lease", Default: "30s, and 30s of grace looked at once a minute; neither can be set"},
		{Name: "Client and Server", Default: "from a Redis client that is handed in", Why: "the same client options for every system"},
	}
}

func (s *asynqSystem) Open(_ context.Context, addr string, o Options) error {
	s.rdb, s.fast = newClient(addr), o.Fast
	s.client = asynq.NewClientFromRedisClient(s.rdb)
	return nil
}

// Enqueue sends a call for each job: there is none for several.
func (s *asynqSystem) Enqueue(ctx context.Context, jobs []Job) error {
	for _, job := range jobs {
		options := []asynq.Option{asynq.Queue(queueName)}
		if job.ID != "" {
			options = append(options, asynq.TaskID(job.ID))
		}
		if job.Delay > 0 {
			options = append(options, asynq.ProcessIn(job.Delay))
		}
		if _, err := s.client.EnqueueContext(ctx, asynq.NewTask("bench", job.Payload), options...); err != nil {
			return err
		}
	}
	return nil
}

func (s *asynqSystem) Work(ctx context.Context, concurrency int, handle Handler) error {
	config := asynq.Config{Concurrency: concurrency, Queues: map[string]int{queueName: 1}, LogLevel: asynq.ErrorLevel}
	if s.fast {
		config.TaskCheckInterval = asynqFastCheck
		config.DelayedTaskCheckInterval = asynqFastCheck
		config.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return 0 }
	}
	server := asynq.NewServerFromRedisClient(s.rdb, config)
	err := server.Start(asynq.HandlerFunc(func(ctx context.Context, job *asynq.Task) error {
		handle(ctx, job.Payload())
		return nil
	}))
	if err != nil {
		return err
	}
	<-ctx.Done()
	server.Shutdown()
	return nil
}

// Leases reads what asynq keeps of leases: seconds of a worker's clock.
func (s *asynqSystem) Leases(ctx context.Context, ids []string) (map[string]time.Time, error) {
	held, err := s.rdb.ZRangeWithScores(ctx, asynqLeases, 0, -1).Result()
	if err != nil {
		return nil, err
	}
	wanted := map[string]bool{}
	for _, id := range ids {
		wanted[id] = true
	}
	leases := map[string]time.Time{}
	for _, z := range held {
		if id, ok := z.Member.(string); ok && wanted[id] {
			leases[id] = time.Unix(int64(z.Score), 0)
		}
	}
	return leases, nil
}

func (s *asynqSystem) Close(context.Context) error { return s.rdb.Close() }

// asynqVersion is what this program was built with.
func asynqVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			if module.Path == "github.com/hibiken/asynq" {
				return module.Version
			}
		}
	}
	return "unknown"
}
