package reliable

import (
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/leaseq/leaseq/lease"
)

const (
	firstUnknownDelay = time.Second
	mostUnknownDelay  = 30 * time.Second
	unknownKindWindow = 5 * time.Minute
	maxUnknownKeys    = 1000
)

// growingDelays remembers what this process has met and cannot handle (kinds without a handler, envelopes of a newer
// version), and says for how long the next such job is put off. Nothing of it is stored: another process begins anew.
//
// The delay belongs to the key, not to the job: it doubles with each call from first to most, and each is drawn
// evenly from its upper half, so that jobs spread and none comes back at once. At most limit keys are remembered; the
// one that was seen first is forgotten for a new one. If that one's window was still open, too many keys are about
// for each to begin with short delays, and the new one begins with the longest.
type growingDelays struct {
	now         func() time.Time
	first, most time.Duration
	window      time.Duration // from when a key was first seen; 0: without end
	limit       int

	mu    sync.Mutex
	known map[string]*growingDelay
	order []string // ring of the known keys, as they were first seen
	head  int      // the oldest one in order, once it is full
}

type growingDelay struct {
	since time.Time
	delay time.Duration // what the next call draws from
}

// newUnknownKinds returns the memory for kinds without a handler. now is time.Now, but for tests.
func newUnknownKinds(now func() time.Time) *growingDelays {
	g := newNewerVersions(now)
	g.window = unknownKindWindow
	return g
}

// newNewerVersions returns the memory for newer versions of the envelope. It has no end.
func newNewerVersions(now func() time.Time) *growingDelays {
	return &growingDelays{
		now: now, first: firstUnknownDelay, most: mostUnknownDelay, limit: maxUnknownKeys,
		known: make(map[string]*growingDelay),
	}
}

// isNew reports whether nothing is known of a key yet.
func (g *growingDelays) isNew(key string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.known[key] == nil
}

// next returns the delay for the next job with this key. expired says that the key's window is over; the delay is
// then 0, and it stays so until the key is forgotten.
func (g *growingDelays) next(key string) (d time.Duration, expired bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	k := g.known[key]
	if k == nil {
		k = g.add(key, now)
	}
	if g.over(k, now) {
		return 0, true
	}
	upper := k.delay
	k.delay = min(2*upper, g.most)
	return upper - upper/2 + drawUpTo(upper/2), false
}

func (g *growingDelays) over(k *growingDelay, now time.Time) bool {
	return g.window > 0 && now.Sub(k.since) >= g.window
}

func (g *growingDelays) add(key string, now time.Time) *growingDelay {
	key = strings.Clone(key) // it may be a part of something large
	k := &growingDelay{since: now, delay: g.first}
	if len(g.order) < g.limit {
		g.order = append(g.order, key)
	} else {
		oldest := g.order[g.head]
		if !g.over(g.known[oldest], now) {
			k.delay = g.most
		}
		delete(g.known, oldest)
		g.order[g.head] = key
		g.head = (g.head + 1) % g.limit
	}
	g.known[key] = k
	return k
}

// saysNoHandler reports whether err means that a Mux had no handler for the job. It does not where err also holds a
// verdict: somebody around the Mux has decided then.
func saysNoHandler(err error) bool {
	if _, decided := findVerdict(err); decided {
		return false
	}
	return walkError(err, func(e error) bool { return e == ErrNoHandler })
}

// verdictForUnknownKind settles a job whose kind has no handler; err is what the Mux returned. It is released with
// the kind's delay while the kind's window is open, then nacked.
func (g *growingDelays) verdictForUnknownKind(kind string, err error) verdict {
	d, expired := g.next(kind)
	if expired {
		return verdict{op: opNack, class: lease.ClassNoHandler, err: err}
	}
	return verdict{op: opRelease, delay: d, hasDelay: true, err: err}
}

// verdictForNewerVersion settles a job whose envelope has a newer version: it is released with the version's delay.
func (g *growingDelays) verdictForNewerVersion(version int, err error) verdict {
	d, _ := g.next(strconv.Itoa(version))
	return verdict{op: opRelease, delay: d, hasDelay: true, newer: true, err: err}
}
