package main

import "github.com/leaseq/leaseq/lease"

// A plan is how much is measured.
type plan struct {
	due, processing []int // jobs, growing
	batches         []int // jobs a call
	rounds          int   // at each size and batch

	payloads, ids []int // bytes: each payload with default IDs, each ID with the default payload
	jobs          int   // with which memory is measured: Redis' tables are then a bit more than half full, which is dear
	bytes         int   // of payload at most, together; fewer jobs where they are large

	concurrency []int // of consumers
	work        int   // jobs for one with the default concurrency
	calls       []int // jobs a call of a producer
	again       int   // tries of each, of which the cheapest counts
}

// What jobs are like unless that is what is varied.
const (
	payloadSize = 200
	idSize      = 26 // of the library's own
)

// plan is what the settings ask for.
func (s *settings) plan() plan {
	p := plan{
		due: []int{1_000, 10_000, 100_000, 1_000_000, 10_000_000}, processing: []int{1_000, 10_000, 100_000, 1_000_000},
		batches: []int{1, 50, lease.DefaultBatch}, rounds: 100,
		payloads: []int{16, payloadSize, 1_000, 10_000}, ids: []int{8, idSize, 64, 256}, jobs: 300_000, bytes: 750_000_000,
		concurrency: []int{1, 10, 50, 200}, work: 50_000, calls: []int{1, 10, 50, 256}, again: 5,
	}
	most := s.max
	if s.quick {
		p.rounds, p.jobs, p.work, p.bytes, p.again = 20, 20_000, 4_000, 64_000_000, 1
		most = min(most, 100_000)
	}
	p.due, p.processing = upTo(p.due, most), upTo(p.processing, most)
	if last := p.due[len(p.due)-1]; most > last {
		p.due = append(p.due, most)
	}
	return p
}

func upTo(sizes []int, most int) (out []int) {
	for _, n := range sizes {
		if n <= most {
			out = append(out, n)
		}
	}
	return out
}
