package reliable

import (
	"slices"
	"sync"
)

// An allotter shares the slots of one process among the queues that it works on. It knows nothing of time but ticks, and
// nothing of Redis: each queue's dispatcher says when it would claim, what its claims have brought, and what is finished.
//
// Every slot is free, held by a claim under way, or a job's. A queue that would claim is a contender: a free slot is kept
// for the contender whose turn it is, also while that cannot ask since a round trip of its own is under way. What a claim
// does not bring it gives back, and the others are told. Neither a keeping nor a claim lasts for longer than patience:
// then the queue is passed over until it asks again.
type allotter struct {
	strict bool

	mu      sync.Mutex
	free    int
	now     int     // ticks
	clock   float64 // how far the contender that is furthest behind has come: where a queue that joins begins
	sharers []*sharer
}

// sharer is one queue's part. All of it is under the allotter's lock.
type sharer struct {
	weight float64
	tell   chan struct{} // it may ask

	wants     bool     // it would claim
	silent    bool     // it did not ask in time, or its claim has no answer: passed over until it asks again
	kept      int      // the tick at which a slot was first kept for it, or never
	claims    []*grant // under way
	asked     int      // how many slots these hold
	served    float64  // jobs that it was given, by its weight
	waits     int      // strict: the tick from which on it waits
	overtaken int      // strict: jobs of queues before it that began meanwhile

	turn float64 // scratch
}

// grant is the slots that one claim holds, less once they were recalled.
type grant struct{ slots, at int }

const (
	ticksPerSecond = 4
	patience       = ticksPerSecond // ticks: for how long slots are kept for a queue, or left with a claim that has no answer
	longWait       = ticksPerSecond // ticks: after which a queue that others come before gets a slot
	fairTurns      = 10             // of them, before it gets that
	never          = -1
)

// newAllotter takes the weights of the queues, or the queues in their order and no weights.
func newAllotter(strict bool, slots int, weights []int) *allotter {
	a := &allotter{strict: strict, free: slots}
	for _, weight := range weights {
		a.sharers = append(a.sharers, &sharer{weight: float64(weight), tell: make(chan struct{}, 1), kept: never})
	}
	return a
}

// take gives a queue the slots for a claim of up to most jobs: those that are free and whose turn is its own. With less
// than least of them it gets none: nil.
func (a *allotter) take(m *sharer, most, least int) *grant {
	a.mu.Lock()
	defer a.mu.Unlock()
	if m.silent && least > 1 { // it has no answer yet
		return nil
	}
	a.join(m)
	if least <= 1 {
		m.kept = never // it has come
	}
	n := a.part(m, most)
	if n < least {
		return nil
	}
	g := &grant{slots: n, at: a.now}
	a.free -= n
	m.asked += n
	m.claims = append(m.claims, g)
	m.kept, m.waits, m.overtaken = never, a.now, 0
	return g
}

// join makes a queue a contender. It has saved nothing up while it was none.
func (a *allotter) join(m *sharer) {
	if m.contends() {
		return
	}
	m.wants, m.silent, m.kept = true, false, never
	m.served = max(m.served, a.clock)
	m.waits, m.overtaken = a.now, 0
}

func (m *sharer) contends() bool { return m.wants && !m.silent }

// part is how many of the free slots are a contender's, up to most. The others are kept, and their owners told.
func (a *allotter) part(m *sharer, most int) int {
	if a.strict {
		return min(a.partByOrder(m), most)
	}
	n := 0
	for _, c := range a.sharers {
		c.turn = c.next()
	}
	for left := a.free; left > 0 && n < most; left-- {
		c := a.first()
		c.turn += 1 / c.weight
		if c == m {
			n++
		} else {
			a.keep(c)
		}
	}
	return n
}

// next is where a contender's next job stands: the lowest comes first.
func (m *sharer) next() float64 { return m.served + float64(m.asked)/m.weight }

// first is the contender with the lowest turn, of those the first.
func (a *allotter) first() *sharer {
	var first *sharer
	for _, c := range a.sharers {
		if c.contends() && (first == nil || c.turn < first.turn) {
			first = c
		}
	}
	return first
}

// partByOrder gives all free slots to the first contender, but one to each that has waited for long.
func (a *allotter) partByOrder(m *sharer) (n int) {
	left := a.free
	for _, c := range a.sharers {
		if left == 0 {
			return n
		}
		if !a.starves(c) {
			continue
		}
		left--
		if c == m {
			n++
		} else {
			a.keep(c)
		}
	}
	first := a.sharers[slices.IndexFunc(a.sharers, (*sharer).contends)] // m is one
	switch {
	case left == 0:
	case first == m:
		n += left
	default:
		a.keep(first)
	}
	return n
}

func (a *allotter) starves(m *sharer) bool {
	return m.contends() && m.asked == 0 && a.now-m.waits > longWait && m.overtaken >= fairTurns
}

// keep notes that a slot is kept for a contender, and tells it unless it is going to ask anyway.
func (a *allotter) keep(m *sharer) {
	if m.kept == never {
		m.kept = a.now
	}
	if m.asked == 0 {
		m.call()
	}
}

func (m *sharer) call() {
	select {
	case m.tell <- struct{}{}:
	default:
	}
}

// land ends a claim that has brought some jobs, and says how many of them have slots. Where the claim's were recalled, or
// were fewer, free ones will do.
func (a *allotter) land(m *sharer, g *grant, jobs int) (room int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	m.asked -= g.slots
	m.claims = slices.DeleteFunc(m.claims, func(other *grant) bool { return other == g })
	a.free += g.slots
	room = min(jobs, a.free)
	a.free -= room
	g.slots = 0
	a.count(m, room)
	a.stir()
	return room
}

// count notes that jobs of a queue begin.
func (a *allotter) count(m *sharer, jobs int) {
	m.served += float64(jobs) / m.weight
	var behind *sharer
	after := false
	for _, c := range a.sharers {
		if after {
			c.overtaken += jobs
		}
		after = after || c == m
		if c.contends() && (behind == nil || c.served < behind.served) {
			behind = c
		}
	}
	if behind != nil {
		a.clock = max(a.clock, behind.served)
	}
}

// give gives slots back: their jobs are over, or never needed them.
func (a *allotter) give(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.free += n
	for _, c := range a.sharers {
		c.turn = c.next()
	}
	c := a.first()
	if a.strict {
		c = a.firstByOrder()
	}
	switch {
	case c == nil:
	case c.kept == never:
		a.keep(c)
	default: // it has not come for the last one yet
		a.stir()
	}
}

// firstByOrder is whose turn it is where the order counts; nil: nobody's.
func (a *allotter) firstByOrder() *sharer {
	var first *sharer
	for _, c := range a.sharers {
		if a.starves(c) {
			return c
		}
		if first == nil && c.contends() {
			first = c
		}
	}
	return first
}

// rest says that a queue would not claim: it has nothing due, or cannot be reached.
func (a *allotter) rest(m *sharer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	m.wants, m.silent, m.kept = false, false, never
	a.stir()
}

// stir tells all contenders that slots are free.
func (a *allotter) stir() {
	if a.free == 0 {
		return
	}
	for _, c := range a.sharers {
		if c.contends() && c.asked == 0 {
			c.call()
		}
	}
}

// tick is called ticksPerSecond times a second. It passes over whoever lets others wait.
func (a *allotter) tick() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.now++
	for _, m := range a.sharers {
		if m.kept != never && a.now-m.kept > patience {
			m.silent, m.kept = true, never
		}
		for _, g := range m.claims {
			if g.slots > 0 && a.now-g.at > patience {
				a.free += g.slots
				m.asked -= g.slots
				g.slots = 0
				m.silent, m.kept = true, never
			}
		}
	}
	a.stir()
}
