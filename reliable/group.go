package reliable

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"

	"github.com/leaseq/leaseq/internal/script"
	"github.com/leaseq/leaseq/lease"
)

// How many calls of a group commit are under way at a time: one; two, where the second one carries so much that it is
// worth a call of its own, so that it is on its way while the server is at work on the other, or where the first one takes
// long; more only with full batches.
const (
	usualTrips = 2
	mostTrips  = 4
	worthATrip = 16
	longTrip   = 2 * time.Millisecond
)

// A group is the group commit of Enqueue: what callers of this process ask for while a call is under way goes into the
// next one together. Nobody waits for others to come: the first caller sends at once.
type group struct {
	store *lease.Store

	mu      sync.Mutex
	flying  int         // calls under way
	late    *time.Timer // for those who wait beside one call
	timing  bool        // it runs
	crowded bool        // the last call had company
	waiting []*member   // in the order in which they came
	bytes   int         // of their records
	closed  bool
	closing context.Context // ends with close
	end     context.CancelFunc
	flights sync.WaitGroup // goroutines of ours
}

func newGroup(store *lease.Store) *group {
	g := &group{store: store}
	g.closing, g.end = context.WithCancel(context.Background())
	g.late = time.AfterFunc(time.Hour, g.overdue)
	g.late.Stop()
	return g
}

// A member is one caller's job in a group commit.
type member struct {
	item lease.Item
	trip *trip      // that it went out with; nil: it waits
	left bool       // its caller left before it was sent: it never will be
	made lease.Made // valid once done has been received from

	// done holds one value once it is over: who receives it, and is not the last to ask, puts it back.
	done chan struct{}
}

// members are used again where nobody has left them behind.
var members = sync.Pool{New: func() any { return &member{done: make(chan struct{}, 1)} }}

// itemLists are used again by one call after the other.
var itemLists = sync.Pool{New: func() any { return new([]lease.Item) }}

// end is called once for each member.
func (m *member) end(made lease.Made) {
	m.made = made
	m.done <- struct{}{}
}

// recycle is for the only one who still knows of a member, after its end.
func (m *member) recycle() lease.Made {
	made := m.made
	*m = member{done: m.done}
	members.Put(m)
	return made
}

// A trip is one call for several members. Its context ends when all their callers have left.
type trip struct {
	members []*member
	present int
	ctx     context.Context
	cancel  context.CancelFunc
}

// enqueue makes one job, in company if there is any.
func (g *group) enqueue(ctx context.Context, item *lease.Item) lease.Made {
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return lease.Made{Err: lease.ErrClosed}
	}
	if g.flying == 0 && !g.crowded {
		g.flying++
		g.mu.Unlock()
		results, err := g.store.EnqueueEach(ctx, []lease.Item{*item})
		g.landed()
		return oneOf(results, 0, err)
	}
	m := members.Get().(*member)
	m.item = *item
	g.waiting = append(g.waiting, m)
	g.bytes += len(item.Record)
	g.launch()
	g.mu.Unlock()
	select {
	case <-m.done:
		return m.recycle()
	case <-ctx.Done():
		return g.leave(ctx, m)
	}
}

// close lets those go who wait, and takes nobody any more. await waits for what is under way.
func (g *group) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	g.late.Stop()
	g.end()
	for _, m := range g.waiting {
		if !m.left {
			m.end(lease.Made{Err: lease.ErrClosed})
		}
	}
	g.waiting, g.bytes = nil, 0
}

func (g *group) await() { g.flights.Wait() }

// spawn runs a goroutine that await waits for; false: it is too late for that.
func (g *group) spawn(fn func()) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.flights.Go(fn)
	}
	return !g.closed
}

func oneOf(results []lease.Made, i int, err error) lease.Made {
	if i < len(results) {
		return results[i]
	}
	return lease.Made{Err: err}
}

// landed is called when a call has been answered, or given up by its callers.
func (g *group) landed() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.flying--
	g.launch()
}

// launch sends what waits, if it may go now. The caller holds the lock.
func (g *group) launch() {
	switch {
	case g.mayGo(g.flying):
		g.flying++
		g.flights.Go(g.fly)
	case len(g.waiting) > 0 && g.flying < usualTrips && !g.timing:
		g.timing = true
		g.late.Reset(longTrip)
	}
}

// mayGo reports whether what waits may go beside so many other calls. The caller holds the lock.
func (g *group) mayGo(others int) bool {
	switch n := len(g.waiting); {
	case others == 0:
		return n > 0
	case others < usualTrips:
		return n >= worthATrip || g.full()
	default:
		return others < mostTrips && g.full()
	}
}

// overdue sends those who have waited for a call that takes long.
func (g *group) overdue() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.timing = false
	if len(g.waiting) > 0 && g.flying < usualTrips {
		g.flying++
		g.flights.Go(g.fly)
	}
}

func (g *group) full() bool {
	return len(g.waiting) >= lease.DefaultBatch || g.bytes >= lease.MaxBytes
}

// board takes those who waited longest, as many as one call takes. The caller holds the lock.
func (g *group) board() *trip {
	t := &trip{members: make([]*member, 0, min(len(g.waiting), lease.DefaultBatch))}
	bytes, taken := 0, 0
	for _, m := range g.waiting {
		size := len(m.item.Record)
		if !m.left {
			if len(t.members) == lease.DefaultBatch || len(t.members) > 0 && bytes+size > lease.MaxBytes {
				break
			}
			m.trip = t
			t.members = append(t.members, m)
			bytes += size
		}
		g.bytes -= size
		taken++
	}
	if taken == len(g.waiting) {
		g.waiting = nil
	} else {
		g.waiting = g.waiting[taken:]
	}
	t.present = len(t.members)
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t
}

// fly sends those who wait, and goes on with those who have come meanwhile. Callers who come back from the call before
// are let in first, which takes no time where there are none.
func (g *group) fly() {
	items := itemLists.Get().(*[]lease.Item)
	defer itemLists.Put(items)
	for t := g.depart(false); t != nil; t = g.depart(true) {
		for _, m := range t.members {
			*items = append(*items, m.item)
		}
		results, err := g.store.EnqueueEach(t.ctx, *items)
		t.cancel()
		for i, m := range t.members {
			m.end(oneOf(results, i, err))
		}
		if err != nil {
			*items = nil // whoever resolves an unknown outcome still reads them
		}
		clear(*items)
		*items = (*items)[:0]
	}
}

// depart begins a call, or another one of the same goroutine, where one may go. Else, with nil, it is one less that flies.
func (g *group) depart(again bool) *trip {
	runtime.Gosched()
	g.mu.Lock()
	defer g.mu.Unlock()
	for !again || g.mayGo(g.flying-1) {
		again = true
		t := g.board()
		if len(t.members) > 0 {
			g.crowded = len(t.members) > 1
			g.launch() // the next one, if it is full too
			return t
		}
		t.cancel() // all of them have left
	}
	g.flying--
	g.launch()
	return nil
}

// leave is for a caller whose context ended. Its job stays in a call that was sent; one that was not never will be.
func (g *group) leave(ctx context.Context, m *member) lease.Made {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-m.done:
		return m.recycle()
	default:
	}
	if m.trip == nil {
		m.left = true
		return lease.Made{Err: script.NewUnknownError("enqueue", ctx.Err(), func(context.Context) error { return ErrNeverRan })}
	}
	if m.trip.present--; m.trip.present == 0 {
		m.trip.cancel()
	}
	return lease.Made{Err: script.NewUnknownError("enqueue", ctx.Err(), m.resolve)}
}

// resolve waits for what became of a job whose caller left.
func (m *member) resolve(ctx context.Context) error {
	select {
	case <-m.done:
		m.done <- struct{}{}
	case <-ctx.Done():
		return ctx.Err()
	}
	var unknown *UnknownError
	if errors.As(m.made.Err, &unknown) {
		return unknown.Resolve(ctx)
	}
	return m.made.Err
}
