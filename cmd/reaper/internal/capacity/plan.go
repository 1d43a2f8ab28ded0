package capacity

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// A Plan is the load that is asked about. Errors name its fields by the flags of `reaper capacity`.
type Plan struct {
	Rate    float64       // jobs a second
	Payload int           // bytes of each
	ID      int           // bytes of the ID of each
	Delay   time.Duration // before each is due
	Waiting int64         // jobs that wait; 0: Rate × Delay

	Concurrency  int           // handlers at a time in each consumer
	Work         time.Duration // that a handler takes
	Lease        time.Duration
	RoundTrip    time.Duration // between a program and Redis, while both are at work
	EnqueueBatch int           // jobs a call of a producer, also by callers that share one

	Headroom   float64 // how many times what is computed is to be there
	NodeMemory int     // GiB of each Redis node
	Partition  int     // jobs in each partition at most
}

// Bounds. Those of jobs and consumers are the library's own.
const (
	mostRate     = 1e9
	mostPayload  = 256 << 20
	mostDelay    = 100 * 365 * 24 * time.Hour
	mostWaiting  = int64(1e15)
	mostHandlers = 10_000
	leastLease   = 20 * time.Millisecond
	mostLease    = 24 * time.Hour
	mostID       = 256
	mostBatch    = 1000
	mostHeadroom = 100
	mostNode     = 1 << 20 // GiB
	mostTrip     = time.Second

	leastPartition = 1_000
	mostPartition  = 100_000_000
)

// DefaultPlan is what is not said otherwise.
func DefaultPlan() Plan {
	return Plan{
		Rate: 10_000, Payload: 200, ID: 26, Concurrency: 50, Work: 10 * time.Millisecond, Lease: 15 * time.Second,
		RoundTrip: time.Millisecond, EnqueueBatch: 1, Headroom: 2, NodeMemory: 64, Partition: 1_000_000,
	}
}

// Check returns everything that is wrong with a plan.
func (p *Plan) Check() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	whole := func(flag string, value, least, most int, unit string) {
		if value < least || value > most {
			wrong("--%s %d: want %d to %d%s", flag, value, least, most, unit)
		}
	}
	length := func(flag string, value, least, most time.Duration) {
		if value < least || value > most {
			wrong("--%s %v: want %v to %v", flag, value, least, most)
		}
	}
	if !(p.Rate > 0 && p.Rate <= mostRate) { // not a number is neither
		wrong("--rate %v: want more than 0 and at most %d jobs a second", p.Rate, int64(mostRate))
	}
	whole("payload", p.Payload, 0, mostPayload, " bytes")
	whole("id", p.ID, 1, mostID, " bytes")
	length("delay", p.Delay, 0, mostDelay)
	if p.Waiting < 0 || p.Waiting > mostWaiting {
		wrong("--waiting %d: want 1 to %d jobs, or 0 for rate × delay", p.Waiting, mostWaiting)
	}
	if p.Waiting > 0 && p.Delay > 0 {
		wrong("--waiting %d and --delay %v: want one of them, since jobs that wait are rate × delay", p.Waiting, p.Delay)
	}
	if waits := p.Rate * p.Delay.Seconds(); len(errs) == 0 && waits > float64(mostWaiting) {
		wrong("--rate %v × --delay %v are %.3g jobs that wait: want at most %d", p.Rate, p.Delay, waits, mostWaiting)
	}
	whole("concurrency", p.Concurrency, 1, mostHandlers, " handlers in each consumer")
	length("work", p.Work, 0, mostLease)
	length("lease", p.Lease, leastLease, mostLease)
	length("round-trip", p.RoundTrip, 0, mostTrip)
	whole("enqueue-batch", p.EnqueueBatch, 1, mostBatch, " jobs a call")
	if !(p.Headroom >= 1 && p.Headroom <= mostHeadroom) {
		wrong("--headroom %v: want 1 to %d", p.Headroom, mostHeadroom)
	}
	whole("node-memory", p.NodeMemory, 1, mostNode, " GiB")
	whole("partition", p.Partition, leastPartition, mostPartition, " jobs in each partition")
	return errors.Join(errs...)
}

func (p *Plan) waiting() float64 {
	if p.Waiting > 0 {
		return float64(p.Waiting)
	}
	return math.Ceil(p.Rate * p.Delay.Seconds())
}
