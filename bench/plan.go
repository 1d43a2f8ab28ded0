package main

import "time"

// A plan is how much of everything is measured. A measurement whose numbers are zero, or whose lists are empty, is left
// out.
type plan struct {
	rounds int // of enqueue, process and steady; everything else is measured once

	enqueueOne, enqueueMany, enqueueBatch int // jobs: from 1 goroutine, from 50, in batches

	process []load
	steady  time.Duration
	memory  []int // jobs

	idle    time.Duration
	latency int // jobs
	delayed spread

	recovery recoveryPlan
	fast     bool // idle, latency and delayed with the fast settings too

	settle  time.Duration // how long a started worker gets before it counts as idle
	timeout time.Duration // of each measurement of one system
}

// A load is so many jobs, worked off so many at a time.
type load struct{ concurrency, jobs int }

// A spread is so many jobs that become due evenly over a time, the first after lead.
type spread struct {
	jobs       int
	lead, over time.Duration
}

// A recoveryPlan is how workers are killed.
type recoveryPlan struct {
	jobs  int             // that each victim holds
	leads []time.Duration // a try for each: how long the survivor runs before the kill
	usual bool            // with the default settings too, not only the fast ones
}

// wholePlan is what the command does without flags.
func wholePlan() plan {
	return plan{
		rounds:     5,
		enqueueOne: 10_000, enqueueMany: 60_000, enqueueBatch: 100_000,
		process:  []load{{1, 5000}, {10, 20_000}, {50, 40_000}, {200, 60_000}, {1000, 60_000}},
		steady:   5 * time.Second,
		memory:   []int{100_000, 1_000_000},
		idle:     30 * time.Second,
		latency:  100,
		delayed:  spread{jobs: 500, lead: 3 * time.Second, over: 20 * time.Second},
		recovery: recoveryPlan{jobs: 20, leads: []time.Duration{time.Second, 21 * time.Second, 41 * time.Second}, usual: true},
		fast:     true,
		settle:   3 * time.Second,
		timeout:  6 * time.Minute,
	}
}

// quickPlan takes well under a minute.
func quickPlan() plan {
	return plan{
		rounds:      3,
		enqueueMany: 20_000,
		process:     []load{{50, 20_000}},
		memory:      []int{50_000}, // which fills the tables of Redis as far as 100,000 do
		idle:        5 * time.Second,
		latency:     8,
		settle:      2 * time.Second,
		timeout:     time.Minute,
	}
}
