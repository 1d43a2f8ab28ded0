package reliable

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// playedQueue behaves as a dispatcher does, with a Redis that has so many jobs due.
type playedQueue struct {
	*sharer
	due, running int
	claimable    bool
	number       int // of jobs that the claim under way asks for
	claim        *grant
	hangs        bool // the claim has no answer
	begun, back  int
}

type played struct {
	t      *rapid.T
	a      *allotter
	slots  int
	queues []*playedQueue
}

func play(t *rapid.T, strict bool) *played {
	slots := rapid.IntRange(1, 9).Draw(t, "slots")
	weights := rapid.SliceOfN(rapid.IntRange(1, 7), 1, 4).Draw(t, "weights")
	p := &played{t: t, slots: slots, a: newAllotter(strict, slots, weights)}
	for _, m := range p.a.sharers {
		p.queues = append(p.queues, &playedQueue{sharer: m})
	}
	return p
}

// check is what holds at any time.
func (p *played) check() {
	out, wrong := 0, p.a.free < 0
	for _, q := range p.queues {
		held := 0
		for _, g := range q.claims {
			held += g.slots
		}
		out += q.running + held
		wrong = wrong || q.running < 0 || held != q.asked
	}
	if wrong || p.a.free+out != p.slots {
		p.t.Fatalf("a slot is lost, or there is one too many: %d free, %d out, of %d", p.a.free, out, p.slots)
	}
}

// launch is what a dispatcher does whenever something has happened.
func (p *played) launch(q *playedQueue) {
	select {
	case <-q.tell:
	default:
	}
	switch {
	case q.claim != nil:
	case !q.claimable:
		p.a.rest(q.sharer)
	default:
		if g := p.a.take(q.sharer, 5, 1); g != nil {
			q.claim, q.number = g, g.slots
		}
	}
	p.check()
}

func (p *played) enqueue(q *playedQueue, n int) {
	q.due += n
	q.claimable = true
	p.launch(q)
}

func (p *played) land(q *playedQueue) {
	n := min(q.number, q.due)
	room := p.a.land(q.sharer, q.claim, n)
	if room > n {
		p.t.Fatalf("room for %d jobs of %d", room, n)
	}
	q.due -= room // the others go back
	q.running += room
	q.begun += room
	q.back += n - room
	q.claim, q.hangs, q.claimable = nil, false, q.due > 0
	p.check()
	p.launch(q)
}

func (p *played) finish(q *playedQueue) {
	q.running--
	p.a.give(1)
	p.check()
}

// step does one of the things that can happen, or nothing: false.
func (p *played) step(choose func(n int) int) bool {
	var can []func()
	for _, q := range p.queues {
		if len(q.tell) > 0 {
			can = append(can, func() { p.launch(q) })
		}
		if q.claim != nil && !q.hangs {
			can = append(can, func() { p.land(q) })
		}
		if q.running > 0 {
			can = append(can, func() { p.finish(q) })
		}
	}
	if len(can) == 0 {
		return false
	}
	can[choose(len(can))]()
	return true
}

func (p *played) must(choose func(n int) int) {
	if !p.step(choose) {
		p.t.Fatal("nothing can happen any more")
	}
}

// Whatever happens in whatever order: no slot is lost or given twice, and who is told asks, so that all jobs are worked off
// without a single tick. Claims that have no answer cost others no more than their time.
func TestSlotsOfSeveralQueuesAreNeitherLostNorForgotten(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := play(t, rapid.Bool().Draw(t, "strict"))
		hanging := false
		choose := func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "event") }
		for range rapid.IntRange(0, 40).Draw(t, "steps") {
			q := p.queues[rapid.IntRange(0, len(p.queues)-1).Draw(t, "queue")]
			switch rapid.IntRange(0, 9).Draw(t, "kind") {
			case 0, 1:
				p.enqueue(q, rapid.IntRange(1, 12).Draw(t, "jobs"))
			case 2:
				q.hangs = q.hangs || q.claim != nil
				hanging = hanging || q.hangs
			case 3:
				if hanging {
					p.a.tick()
					p.check()
				}
			case 4:
				q.claimable = q.due > 0 && q.claimable
				p.launch(q) // somebody else took what there was, or a wake-up came
			default:
				p.step(choose)
			}
		}
		first := func(int) int { return 0 }
		for ticks := 0; ticks < 3*patience && !p.idle(); {
			if !p.step(first) {
				require.True(t, hanging, "somebody waits for a tick")
				p.a.tick()
				ticks++
				p.check()
			}
		}
		for i, q := range p.queues {
			require.True(t, q.hangs || q.due == 0, "queue %d has %d jobs due", i, q.due)
		}
	})
}

// idle reports whether all that can be worked off is.
func (p *played) idle() bool {
	return !slices.ContainsFunc(p.queues, func(q *playedQueue) bool {
		return q.running > 0 || q.claim != nil && !q.hangs || q.due > 0 && !q.hangs
	})
}

// anyOrder chooses without a draw for each of many events.
func anyOrder(t *rapid.T) func(n int) int {
	seed := rapid.Uint64().Draw(t, "seed")
	return rand.New(rand.NewPCG(seed, seed)).IntN
}

// While all queues have work, each begins its part of the jobs, to within what one round of claims brings.
func TestWeightsHoldInAnyOrderOfEvents(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := play(t, false)
		choose := anyOrder(t)
		for _, q := range p.queues {
			p.a.join(q.sharer) // all at once
		}
		sum, all := 0.0, 0.0
		for _, q := range p.queues {
			p.enqueue(q, 1_000_000)
			sum += q.weight
		}
		for range 300 {
			p.must(choose)
		}
		for _, q := range p.queues {
			all += float64(q.begun)
		}
		for i, q := range p.queues {
			require.InDelta(t, all*q.weight/sum, q.begun, float64(2*p.slots+1), "queue %d of weight %v: %v of %v", i, q.weight, q.begun, all)
		}
	})
}

// The first queue has every slot that becomes free, but one for each job of a queue that has waited for a second and for
// ten jobs; and with slots that become free more seldom than once a second it keeps ten of eleven.
func TestStrictOrderStarvesNobody(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		slots := rapid.IntRange(1, 4).Draw(t, "slots")
		starts := rapid.IntRange(1, 20).Draw(t, "starts in a tick")
		p := &played{t: t, slots: slots, a: newAllotter(true, slots, []int{1, 1, 1})}
		for _, m := range p.a.sharers {
			p.queues = append(p.queues, &playedQueue{sharer: m})
		}
		for _, q := range p.queues {
			p.a.join(q.sharer)
		}
		for _, q := range p.queues {
			p.enqueue(q, 1_000_000)
		}
		const ticks = 100
		choose := anyOrder(t)
		for range ticks {
			for begun := p.begun(); p.begun() < begun+starts; {
				p.must(choose)
			}
			p.a.tick()
		}
		total := p.begun()
		// a turn needs longWait + 1 ticks and ten jobs, and then a slot, for which at most all slots' jobs are waited for
		turn := max(longWait+1, (fairTurns+2*slots+starts-1)/starts+1) + 2*slots/starts + 2
		for i, q := range p.queues[1:] {
			require.GreaterOrEqual(t, q.begun, ticks/turn-1, "queue %d, %d jobs in all", i+1, total)
			require.LessOrEqual(t, q.begun, min(ticks/(longWait+1)+1, total/fairTurns+1), "queue %d", i+1)
		}
	})
}

func (p *played) begun() (n int) {
	for _, q := range p.queues {
		n += q.begun
	}
	return n
}

// A queue that had nothing to do for long has not saved anything up, and one that ran alone owes nothing.
func TestNothingIsSavedUpAndNothingOwed(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := &played{t: t, slots: 4, a: newAllotter(false, 4, []int{1, 1})}
		for _, m := range p.a.sharers {
			p.queues = append(p.queues, &playedQueue{sharer: m})
		}
		busy, late := p.queues[0], p.queues[1]
		if rapid.Bool().Draw(t, "the other") {
			busy, late = late, busy
		}
		choose := anyOrder(t)
		p.enqueue(busy, 1_000_000)
		for range 300 {
			p.must(choose)
		}
		if rapid.Bool().Draw(t, "it ends") {
			busy.due, busy.claimable = 0, false
			for p.step(choose) {
			}
			p.enqueue(late, 1)
			for p.step(choose) {
			}
			p.enqueue(busy, 1_000_000)
		}
		was := busy.begun
		before := late.begun
		p.enqueue(late, 1_000_000)
		for range 300 {
			p.must(choose)
		}
		require.InDelta(t, busy.begun-was, late.begun-before, float64(3*p.slots))
	})
}
