package reliable

import (
	"context"
	"math"
	"slices"

	"github.com/leaseq/leaseq/lease"
)

// mostFlights is how many round trips of a consumer may be under way: while the server works on one, the client prepares
// the next.
const mostFlights = 2

// capacity is how many jobs a consumer holds at most.
func (r *run) capacity() int { return r.opts.Concurrency + r.opts.Prefetch }

// worthwhile is what a second round trip must carry: half of the slots, or of what one can carry. With less, two would
// share the work of one, and cost the server twice.
func (r *run) worthwhile() int { return (min(r.capacity(), lease.DefaultBatch) + 1) / 2 }

// enough is how many jobs must have come back from handlers before it is worth to look at them: any, if nothing is under
// way, and what makes a second round trip worthwhile while one is.
func (r *run) enough() int {
	switch {
	case r.flying == 0:
		return 1
	case r.flying < mostFlights:
		return max(r.worthwhile()-len(r.pending), 1)
	default:
		return math.MaxInt
	}
}

// launch sends what is to be sent; without anything to claim it waits for a wake-up.
func (r *run) launch() {
	for r.flying < mostFlights && !r.paused {
		n := 0
		if r.claimable && !r.stopping {
			n = min(r.free-r.asked, lease.DefaultBatch)
		}
		sent := r.pending[:batchOf(r.pending)]
		n, slots := r.allotted(n, len(sent))
		if max(len(sent), n) == 0 || r.flying > 0 && max(len(sent), n) < r.worthwhile() {
			break
		}
		r.pending = r.pending[len(sent):]
		r.fly(sent, n, slots)
	}
	if r.flying == 0 && !r.paused && (r.free > 0 || r.share != nil) && !r.claimable && !r.stopping && !r.armed {
		r.armed = true
		r.waiter.Arm()
		r.silence.Reset(r.opts.WakeFallback + lateWake)
	}
}

// batchOf is how many verdicts go into one round trip: few where their records or results are large.
func batchOf(pending []*work) int {
	n, bytes := 0, 0
	for _, w := range pending[:min(len(pending), lease.DefaultBatch)] {
		if bytes += w.verdict.Size(); n > 0 && bytes > lease.MaxBytes {
			break
		}
		n++
	}
	return n
}

func (r *run) fly(sent []*work, n int, slots *grant) {
	r.flying++
	r.asked += n
	if n > 0 {
		r.claimed++
	}
	f := flight{number: r.claimed, sent: sent, asked: n, slots: slots}
	verdicts := make([]lease.Verdict, len(sent))
	for i, w := range sent {
		verdicts[i] = w.verdict
	}
	ctx, cancel := r.patience(sent)
	r.trips <- func() {
		defer cancel()
		f.done, f.settleErr, f.claimed, f.claimErr = r.store.Exchange(ctx, verdicts, n, nil)
		r.landed <- f
	}
}

// hire starts the goroutines that make round trips, as many as may be under way; dismiss ends them. A goroutine for each
// round trip would begin with a small stack, which the client's calls make it grow each time.
func (r *run) hire() (dismiss func()) {
	r.landed, r.trips = make(chan flight, mostFlights), make(chan func(), mostFlights)
	for range mostFlights {
		go func(trips <-chan func()) {
			for trip := range trips {
				trip()
			}
		}(r.trips)
	}
	return func() { close(r.trips) }
}

// land takes a round trip out of the count.
func (r *run) land(f flight) {
	r.flying--
	r.asked -= f.asked
	r.admit(f)
}

// patience is for how long a round trip may take: until the oldest of its verdicts has been repeated for long enough.
func (r *run) patience(sent []*work) (context.Context, context.CancelFunc) {
	if len(sent) == 0 {
		return r.flights, func() {}
	}
	oldest := slices.MinFunc(sent, func(a, b *work) int { return a.over.Compare(b.over) })
	return context.WithDeadline(r.flights, oldest.over.Add(settleFor))
}
