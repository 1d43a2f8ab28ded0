package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// A System is a queue that is measured. To add one, implement this in a file of its own, and add a line to known.
//
// One value is opened once, on an empty server that nobody else uses, and closed at the end. Its methods are called by
// many goroutines at once. Use the system as its own documents say it is used best, with the client of [newClient] if it
// takes one, and change settings only where the measurement needs it: each change is listed by Settings.
//
// A system may also be a [Batcher], a [Leaser] and a [Prefetcher]; what it is not is left out of its column.
type System interface {
	// Name is one lower-case word: the heading of its column and its key in the JSON.
	Name() string
	// Settings are what it runs with: what a reader needs to repeat the figures by hand.
	Settings() []Setting
	// Open connects to the server at addr, host:port.
	Open(ctx context.Context, addr string, o Options) error
	// Enqueue returns when all jobs are stored. Several jobs are one call where the system has such a call.
	Enqueue(ctx context.Context, jobs []Job) error
	// Work calls handle for each job that is due, up to concurrency of them at once, until ctx ends. Then it stops as
	// the system stops in an orderly way, and returns nil.
	Work(ctx context.Context, concurrency int, handle Handler) error
	// Close gives everything back. Work has returned by then.
	Close(ctx context.Context) error
}

// A Batcher is a System whose Enqueue of several jobs is one call to the server.
type Batcher interface {
	System
	Batches()
}

// A Leaser is a System that gives the jobs of a dead worker to another one.
type Leaser interface {
	System
	// Leases tells until when each of these jobs is held by a worker, as the server has stored it. A job that nobody
	// holds is left out.
	Leases(ctx context.Context, ids []string) (map[string]time.Time, error)
}

// A Prefetcher is a System whose worker can take jobs before a handler is free for them.
type Prefetcher interface {
	System
	Prefetches()
}

// A Handler is the work of a job. It has no error: every job succeeds.
type Handler func(ctx context.Context, payload []byte)

// A Job is one job to enqueue.
type Job struct {
	ID      string // "": the system makes one
	Payload []byte // not kept and not changed
	Delay   time.Duration
}

// Options choose between settings of a system.
type Options struct {
	// Fast asks for the settings that start, and restart, a job soonest, whatever that costs. Otherwise the defaults.
	Fast bool
	// Prefetch is how many jobs may wait in a worker for a handler. A system that is no Prefetcher has no use for it.
	Prefetch int
}

// A Setting is what a system runs with.
type Setting struct {
	Name    string `json:"name"`
	Default string `json:"default"`        // in the default runs
	Fast    string `json:"fast,omitempty"` // where Options.Fast is set; "": the same
	Why     string `json:"why,omitempty"`  // "": it is the system's own default
}

// known are the systems that there are. The first is the one that the others are compared with.
var known = []func() System{
	func() System { return new(leaseqSystem) },
	func() System { return new(asynqSystem) },
	func() System { return new(popSystem) },
}

// queueName is what the queue is called in every system.
const queueName = "bench"

// poolSize is more connections than any measurement has callers that enqueue.
const poolSize = 128

// newClient makes the client that every system gets.
func newClient(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, PoolSize: poolSize})
}

// choose returns the systems with these names, in the order of known; no names are all systems.
func choose(names []string) ([]func() System, error) {
	var chosen []func() System
	var all []string
	for _, makeSystem := range known {
		name := makeSystem().Name()
		all = append(all, name)
		if len(names) == 0 || slices.Contains(names, name) {
			chosen = append(chosen, makeSystem)
		}
	}
	for _, name := range names {
		if !slices.Contains(all, name) {
			return nil, fmt.Errorf("no system is called %q: there are %s", name, strings.Join(all, ", "))
		}
	}
	return chosen, nil
}
