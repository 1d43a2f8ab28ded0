package reliable

import (
	"cmp"
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
	f := flight{number: r.claimed, sent: sent, verdicts: r.verdicts.take(), asked: n, slots: slots}
	for _, w := range sent {
		f.verdicts = append(f.verdicts, w.verdict)
	}
	options := &lease.ClaimOptions{Room: r.rooms.take()}
	ctx, cancel := r.patience(sent)
	r.trips <- func() {
		defer cancel()
		f.done, f.settleErr, f.claimed, f.claimErr = r.store.Exchange(ctx, f.verdicts, n, options)
		r.landed <- f
	}
}

// spares are lists that one round trip has used, for another one.
type spares[T any] [][]T

// take returns an empty list, with room if there is a spare one.
func (s *spares[T]) take() (list []T) {
	if n := len(*s); n > 0 {
		list, *s = (*s)[n-1], (*s)[:n-1]
	}
	return list
}

// put keeps a list's room, unless there is none.
func (s *spares[T]) put(list []T) {
	if cap(list) > 0 && len(*s) < mostFlights {
		clear(list)
		*s = append(*s, list[:0])
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
	if f.settleErr == nil { // else whoever resolves an unknown outcome still reads them
		r.verdicts.put(f.verdicts)
	}
	r.admit(f)
}

// patience is for how long a round trip may take: until the oldest of its verdicts has been repeated for long enough.
func (r *run) patience(sent []*work) (context.Context, context.CancelFunc) {
	if len(sent) == 0 {
		return r.flights, func() {}
	}
	oldest := slices.MinFunc(sent, func(a, b *work) int { return cmp.Compare(a.over, b.over) })
	return context.WithDeadline(r.flights, processStart.Add(oldest.over+settleFor))
}
