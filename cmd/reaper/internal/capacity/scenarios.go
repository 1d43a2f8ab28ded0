package capacity

import "time"

// A Scenario is a plan that the documents show.
type Scenario struct {
	Name string
	Plan Plan
}

// Scenarios are three rates, each with jobs that are due at once and with jobs that wait half an hour; the largest with
// larger calls; and a billion jobs that wait.
func Scenarios() []Scenario {
	of := func(name string, rate float64, change func(p *Plan)) Scenario {
		p := DefaultPlan()
		p.Rate = rate
		change(&p)
		return Scenario{name, p}
	}
	now := func(*Plan) {}
	later := func(p *Plan) { p.Delay = 30 * time.Minute }
	large := func(p *Plan) { p.EnqueueBatch, p.Concurrency = 50, 500 }
	return []Scenario{
		of("1k jobs/s", 1e3, now),
		of("1k jobs/s, 30m delay", 1e3, later),
		of("100k jobs/s", 1e5, now),
		of("100k jobs/s, 30m delay", 1e5, later),
		of("10M jobs/s", 1e7, now),
		of("10M jobs/s, large calls", 1e7, large),
		of("10M jobs/s, 30m delay", 1e7, later),
		of("1 billion delayed jobs, 10k jobs/s", 1e4, func(p *Plan) { p.Waiting = 1e9 }),
		of("the same, 10 million in a partition", 1e4, func(p *Plan) { p.Waiting, p.Partition = 1e9, 10_000_000 }),
	}
}

// Assumptions are what the answer rests on, one sentence each.
func (c *Costs) Assumptions() []string {
	return []string{
		"Costs were measured on " + c.Machine + ", by `" + c.Command + "`; another machine has others: measure there, and give the file with --costs.",
		"A Redis node runs scripts on one core. Partitions beyond the first are separate queues today, with names of their own: your program spreads jobs over them.",
		"All jobs of a partition have one delay: due times at random cost more to enqueue. Each job is enqueued once, claimed once and acked. Retries cost as much again as a claim and a settle; results, guards and headers are not counted.",
		"Each partition has one consumer at least. A consumer settles and claims in one round trip what has finished since the last: its share of the rate × round trip, at least 1 job.",
		"Memory is what Redis allocates for jobs that wait. Persistence, replicas and client buffers come out of the headroom; a replica is a node more for each.",
		"Client cores are the library's share, with producers and consumers together. What handlers compute is yours to add. Sweeps and idle calls, a few a second for each consumer, are not counted.",
	}
}
