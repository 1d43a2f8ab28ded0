package main

import (
	"fmt"
	"slices"
	"sync"
)

// results are the values that were measured. They may be added to by several goroutines at once.
type results struct {
	mu     sync.Mutex
	values map[string]map[string][]float64 // by system and figure
	redis  string                          // version of the server
}

func newResults() *results { return &results{values: map[string]map[string][]float64{}} }

func (r *results) add(system, figure string, value float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.values[system] == nil {
		r.values[system] = map[string][]float64{}
	}
	r.values[system][figure] = append(r.values[system][figure], value)
}

func (r *results) noteServer(version string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.redis = version
}

// get returns the values of a figure, in the order in which they were added.
func (r *results) get(system, figure string) []float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.values[system][figure])
}

// median returns the median of a figure, if there is one.
func (r *results) median(system, figure string) (value float64, ok bool) {
	values := r.get(system, figure)
	if len(values) == 0 {
		return 0, false
	}
	return median(values), true
}

// ratio returns the ratio of the medians of two systems.
func (r *results) ratio(figure, one, other string) (value float64, ok bool) {
	a, okA := r.median(one, figure)
	b, okB := r.median(other, figure)
	if !okA || !okB {
		return 0, false
	}
	return ratio(a, b)
}

// A figure is a row of the table.
type figure struct {
	Key   string
	Title string
	Unit  string
	Place int  // digits after the point
	Hide  bool // it is in the JSON only
}

// costs are the figures of what a job costs, by the ends of their keys.
var costs = []figure{
	{Key: "server_cpu_us", Title: "server CPU", Unit: "µs/job", Place: 1},
	{Key: "requests", Title: "requests", Unit: "/job", Place: 3},
	{Key: "net_in_bytes", Title: "network, to the server", Unit: "B/job"},
	{Key: "net_out_bytes", Title: "network, from the server", Unit: "B/job"},
	{Key: "client_cpu_us", Title: "client CPU", Unit: "µs/job", Place: 1},
	{Key: "allocs", Title: "client allocations", Unit: "/job", Place: 1},
	{Key: "alloc_bytes", Title: "client allocations", Unit: "B/job"},
}

// figuresOf are all figures of a plan, in the order of the table.
func figuresOf(p plan) []figure {
	var all []figure
	rate := func(key, title string) { all = append(all, figure{Key: key, Title: title, Unit: "jobs/s"}) }
	cost := func(key, title string, shown ...string) {
		for _, c := range costs {
			all = append(all, figure{
				Key: key + "_" + c.Key, Title: title + ": " + c.Title, Unit: c.Unit, Place: c.Place,
				Hide: !slices.Contains(shown, c.Key),
			})
		}
	}
	everything := []string{"server_cpu_us", "requests", "net_in_bytes", "net_out_bytes", "client_cpu_us", "allocs", "alloc_bytes"}
	rate("enqueue_1", "enqueue, 1 goroutine")
	rate("enqueue_50", "enqueue, 50 goroutines")
	rate("enqueue_batch", "enqueue, batches of 100")
	for _, load := range p.process {
		rate(fmt.Sprintf("process_%d", load.concurrency), fmt.Sprintf("process at %d", load.concurrency))
	}
	if len(p.process) > 0 && p.process[0].concurrency == 1 {
		rate("process_1_prefetch", "process at 1, jobs wait in the worker where it can")
	}
	all = append(all,
		figure{Key: "ceiling", Title: "ceiling: ZADD, HSET and ZREM by EVALSHA, pipelines of 16", Unit: "calls/s"},
		figure{Key: "ceiling_share", Title: "process at 200, share of the ceiling", Place: 2})
	rate("steady", "steady state, 10 producers")
	all = append(all, figure{Key: "steady_enqueued", Title: "steady state: enqueued", Unit: "jobs/s", Hide: true})
	cost("enqueue_1", "enqueue, 1 goroutine")
	cost("enqueue_50", "enqueue, 50 goroutines", "server_cpu_us", "client_cpu_us", "allocs")
	cost("enqueue_batch", "enqueue, batches of 100", "server_cpu_us")
	for _, load := range p.process {
		shown := []string{"server_cpu_us"}
		if load.concurrency == headlineConcurrency {
			shown = everything
		}
		cost(fmt.Sprintf("process_%d", load.concurrency), fmt.Sprintf("process at %d", load.concurrency), shown...)
	}
	for _, n := range p.memory {
		all = append(all, figure{Key: memoryFigure(n), Title: fmt.Sprintf("memory beside the payload, %d jobs", n), Unit: "B/job"})
	}
	return append(all, calmFigures(p)...)
}

// calmFigures are those of queues with little to do, with the default settings and with the fast ones.
func calmFigures(p plan) []figure {
	var all []figure
	for _, f := range []figure{
		{Key: "idle_commands", Title: "idle worker: commands", Unit: "/s", Place: 1},
		{Key: "latency_p50", Title: "idle queue, enqueue to start: p50", Unit: "ms", Place: 2},
		{Key: "latency_p99", Title: "idle queue, enqueue to start: p99", Unit: "ms", Place: 2},
		{Key: "latency_max", Title: "idle queue, enqueue to start: longest", Unit: "ms", Place: 2},
		{Key: "latency_list_p50", Title: "a blocking list pop on the same server, push to pop: p50", Unit: "ms", Place: 2},
		{Key: "latency_vs_list", Title: "idle queue, enqueue to start, to that of the list: p50", Place: 1},
		{Key: "late_p50", Title: "delayed jobs, lateness: p50", Unit: "ms", Place: 2},
		{Key: "late_p99", Title: "delayed jobs, lateness: p99", Unit: "ms", Place: 2},
		{Key: "late_min", Title: "delayed jobs, lateness: earliest", Unit: "ms", Place: 2},
		{Key: "recovery_p50", Title: "after SIGKILL, expiry to start: p50", Unit: "ms", Place: 1},
		{Key: "recovery_max", Title: "after SIGKILL, expiry to start: longest", Unit: "ms", Place: 1},
		{Key: "recovery_from_kill_p50", Title: "after SIGKILL, kill to start: p50", Unit: "ms"},
		{Key: "recovery_from_kill_max", Title: "after SIGKILL, kill to start: longest", Unit: "ms"},
	} {
		all = append(all, f)
		f.Key, f.Title = f.Key+"_fast", f.Title+" (fast settings)"
		all = append(all, f)
	}
	return all
}
