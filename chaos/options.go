package chaos

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leaseq/leaseq/reliable"
)

// Options are the settings of Run and Test; nil is valid, and zero values mean the documented defaults.
type Options struct {
	// URL is the Redis server to run on, as redis://127.0.0.1:6379/0. The run uses a queue of its own, and removes it at its
	// end; what a fault does to the server hits everything on it, and faults that need to kill or change the process are
	// not available. Default: a redis-server of the run's own, from PATH, with an append-only file.
	URL string
	// Prefix of the queue's keys. Default "leaseq".
	Prefix string
	// Queue is the queue's name. It must be empty. Default: chaos-<seed>-<time>.
	Queue string
	// Lease of the queue: 200 ms to 1 min. Default 2 s. A shorter one makes a sharper run on a machine that keeps its times.
	Lease time.Duration

	// Worker runs in processes of its own: it works on the queue that it is told of until ctx ends, which SIGTERM does, and
	// returns nil then. These processes are the running program once more, with the same arguments, up to its call of
	// Run, which becomes the worker; of Test, the test binary with -test.run for the calling test. Default, if Command
	// is empty too: a worker whose handlers do all that handlers do, for the jobs of the default Job.
	Worker func(ctx context.Context, w *Worker) error
	// Command is a program that is a worker, and its arguments. It takes its server and queue from the environment (see
	// package chaos/record, EnvURL), and has record.FromEnv's middleware and hooks around its handlers. SIGTERM must end it
	// in order.
	Command []string
	// OtherVersion is a worker as Command, made of another version of this module, for the fault two-versions.
	OtherVersion []string
	// Workers is how many processes work at a time: 1 to 64. Default 4.
	Workers int
	// Concurrency is how many jobs a worker works on at a time: 1 to 1,000. Default 16.
	Concurrency int

	// Job makes the i-th job, i from 0 on. It is called from several goroutines. Its kind and payload are the value's (see
	// Codec). Default: jobs of all sorts for the default Worker.
	Job func(i int) (value reliable.Kinder, o *reliable.EnqueueOptions)
	// Codec encodes the values of Job. Default JSON.
	Codec reliable.Codec
	// Profile is how jobs come: a Profile's name. Default "mixed".
	Profile string
	// Rate is how many jobs a second are enqueued, on average: 1 to 100,000. Default 200. Fewer come where the queue
	// does not keep up.
	Rate int

	// Duration is how long jobs and faults come, the quiet time at the end included in which the queue must catch up after
	// the faults: from 8 leases + 2 s to 30 days. Default 30 s. The run ends 15 s later at the latest, or, with leases above 3 s, five leases.
	Duration time.Duration
	// Seed of the schedule of faults and of the traffic. Default 0: one by chance.
	Seed uint64
	// Faults that may come. Default: AllFaults. Those that are not available here are left out, and named in the Outcome.
	Faults []Fault
	// Schedule, where it is given, is played instead of one made from Seed; its Seed and Duration are taken, and Seed and
	// Duration here must be zero or the same.
	Schedule *Schedule

	// Slack is that of CheckOptions: what a machine that is slow as a whole may add to the bounds of time. Default 0.
	// The variable LEASEQ_CHAOS_SLACK, as 1s, adds to it: for storms that run beside other tests. The Outcome tells of it.
	Slack time.Duration

	// Dir keeps the histories, and the own server's files. It must be empty or not there. Default: a new one in the
	// temporary folder, which is removed when the run was right.
	Dir string
	// Progress is called about five times a second, if it is not nil.
	Progress func(Progress)
	// Logger. Default: none.
	Logger *slog.Logger
}

const (
	defaultLease    = 2 * time.Second
	shortestLease   = 200 * time.Millisecond
	longestLease    = time.Minute
	defaultDuration = 30 * time.Second
	longestDuration = 30 * 24 * time.Hour
)

// settings are Options with defaults in place.
type settings struct {
	Options
	calm time.Duration // a part of Duration without faults
	last time.Duration // the part after that, without jobs
}

// settle fills in the defaults and checks the rest.
func (o *Options) settle() (*settings, error) {
	s := &settings{}
	if o != nil {
		s.Options = *o
	}
	var errs []error
	if s.Schedule != nil {
		errs = append(errs, s.takeSchedule())
	}
	if s.Seed == 0 {
		s.Seed = rand.Uint64N(1<<53-1) + 1 // JSON readers keep so much
	}
	fill(&s.Prefix, "leaseq")
	fill(&s.Queue, fmt.Sprintf("chaos-%d-%s", s.Seed, time.Now().UTC().Format("20060102-150405.000")))
	fill(&s.Lease, defaultLease)
	fill(&s.Duration, defaultDuration)
	fill(&s.Workers, 4)
	fill(&s.Concurrency, 16)
	fill(&s.Rate, 200)
	fill(&s.Profile, "mixed")
	if s.Codec == nil {
		s.Codec = reliable.JSON
	}
	if s.Logger == nil {
		s.Logger = slog.New(slog.DiscardHandler)
	}
	if s.Faults == nil {
		s.Faults = AllFaults()
	}
	errs = append(errs, s.addSlack(), s.check())
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("chaos: %w", err)
	}
	s.calm = max(min(s.Duration/5, 30*time.Second), 3*s.Lease+time.Second)
	s.last = 2 * s.Lease
	return s, nil
}

// EnvSlack is the variable that adds to Options.Slack.
const EnvSlack = "LEASEQ_CHAOS_SLACK"

func (s *settings) addSlack() error {
	text := os.Getenv(EnvSlack)
	if text == "" {
		return nil
	}
	more, err := time.ParseDuration(text)
	if err != nil || more < 0 {
		return fmt.Errorf("%s is %q: want a duration of 0 or more, as 1s", EnvSlack, text)
	}
	s.Slack += more
	return nil
}

func fill[T comparable](to *T, value T) {
	var zero T
	if *to == zero {
		*to = value
	}
}

func (s *settings) takeSchedule() error {
	var errs []error
	duration := time.Duration(s.Schedule.DurationMS) * time.Millisecond
	if s.Seed != 0 && s.Seed != s.Schedule.Seed {
		errs = append(errs, fmt.Errorf("Seed is %d, and the Schedule's is %d: leave it 0", s.Seed, s.Schedule.Seed))
	}
	if s.Duration != 0 && s.Duration != duration {
		errs = append(errs, fmt.Errorf("Duration is %v, and the Schedule's is %v: leave it 0", s.Duration, duration))
	}
	s.Seed, s.Duration = s.Schedule.Seed, duration
	return errors.Join(errs...)
}

func (s *settings) check() error {
	var errs []error
	within := func(name string, n, lo, hi int) {
		if n < lo || n > hi {
			errs = append(errs, fmt.Errorf("%s is %d: want %d to %d", name, n, lo, hi))
		}
	}
	within("Workers", s.Workers, 1, 64)
	within("Concurrency", s.Concurrency, 1, 1000)
	within("Rate", s.Rate, 1, 100_000)
	if s.Lease < shortestLease || s.Lease > longestLease {
		errs = append(errs, fmt.Errorf("Lease is %v: want %v to %v", s.Lease, shortestLease, longestLease))
	}
	if least := 8*s.Lease + 2*time.Second; s.Duration < least || s.Duration > longestDuration {
		errs = append(errs, fmt.Errorf("Duration is %v: want %v (8 leases + 2 s) to %v", s.Duration, least, longestDuration))
	}
	if s.Worker != nil && len(s.Command) > 0 {
		errs = append(errs, errors.New("Worker and Command are both set: want one of them"))
	}
	if (s.Worker != nil || len(s.Command) > 0) && s.Job == nil {
		errs = append(errs, errors.New("Job is nil: a worker of yours needs jobs of yours"))
	}
	if s.Worker == nil && len(s.Command) == 0 && s.Job != nil {
		errs = append(errs, errors.New("Worker and Command are not set: jobs of yours need a worker of yours"))
	}
	if _, ok := profiles[s.Profile]; !ok {
		errs = append(errs, fmt.Errorf("Profile is %q: want one of %s", s.Profile, strings.Join(Profiles(), ", ")))
	}
	if s.URL != "" {
		if _, err := redis.ParseURL(s.URL); err != nil {
			errs = append(errs, errors.New("URL cannot be read: want redis://[user:password@]host:port[/database]"))
		}
	}
	errs = append(errs, checkFaults(s.Faults), s.Schedule.check(s.Faults))
	return errors.Join(errs...)
}
