package model

import (
	"fmt"
	"strings"
)

// A System is a transition system over states of type S.
type System[S any] interface {
	// Start is the state that everything begins in.
	Start() S
	// Next gives each step that can be taken in s, in an order that depends on s alone. s is not changed.
	Next(s *S, take func(Step, *S))
	// Key is the same for states that behave alike.
	Key(s *S) uint64
	// Broken says which invariant does not hold in s, "" if all do.
	Broken(s *S) string
	// Tell names a step for people.
	Tell(Step) string
}

// A Step is one transition, in a form that costs nothing: what happens, and to whom.
type Step struct{ What, A, B, C uint8 }

// Found is what a search came to.
type Found struct {
	States, Steps int // different states; transitions taken
	Depth         int // steps from the start to the farthest state
	Broken        string
	Trace         []string // the shortest way to the broken state
}

func (f *Found) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d states, %d steps, depth %d", f.States, f.Steps, f.Depth)
	if f.Broken == "" {
		return b.String()
	}
	fmt.Fprintf(&b, "\nbroken after %d steps: %s\n", len(f.Trace), f.Broken)
	for i, step := range f.Trace {
		fmt.Fprintf(&b, "%4d. %s\n", i+1, step)
	}
	return b.String()
}

// A BoundError says that a search was given up: there are more states than it may visit.
type BoundError struct{ States int }

func (e *BoundError) Error() string {
	return fmt.Sprintf("more than %d states: the search is not exhaustive", e.States)
}

// Search visits all states of a system, up to the first broken one, or an error after most states. States count as the
// same where 64 bits of them agree: of 10 million states, two different ones do with a probability of 3 in a million.
func Search[S any](sys System[S], most int) (*Found, error) {
	found := &Found{}
	start := sys.Start()
	tree := &ancestry{parents: []uint32{0}, ordinals: []uint16{0}}
	seen := newKeySet()
	seen.add(sys.Key(&start))
	level, base := &queue[S]{}, 0
	level.add(&start)
	for depth := 0; level.count > 0; depth++ {
		found.Depth = depth
		next, nextBase := &queue[S]{}, len(tree.parents)
		for i := range level.count {
			s := level.at(i)
			if why := sys.Broken(s); why != "" {
				found.Broken, found.Trace = why, retrace(sys, tree.path(base+i))
				found.States = len(tree.parents)
				return found, nil
			}
			ordinal := uint16(0)
			sys.Next(s, func(_ Step, to *S) {
				found.Steps++
				if seen.add(sys.Key(to)) {
					next.add(to)
					tree.add(base+i, ordinal)
				}
				ordinal++
			})
			if len(tree.parents) > most {
				return found, &BoundError{States: most}
			}
		}
		level, base = next, nextBase
	}
	found.States = len(tree.parents)
	return found, nil
}

// queue is a list that grows without moving what is in it, and lets go of what was read.
type queue[S any] struct {
	chunks [][]S
	count  int
}

const chunk = 1 << 12

func (q *queue[S]) add(s *S) {
	if q.count%chunk == 0 {
		q.chunks = append(q.chunks, make([]S, 0, chunk))
	}
	last := &q.chunks[len(q.chunks)-1]
	*last = append(*last, *s)
	q.count++
}

// at reads the states in their order, each once.
func (q *queue[S]) at(i int) *S {
	if i%chunk == 0 && i > 0 {
		q.chunks[i/chunk-1] = nil
	}
	return &q.chunks[i/chunk][i%chunk]
}

// ancestry remembers from where, and by which step, each state was first reached.
type ancestry struct {
	parents  []uint32
	ordinals []uint16
}

func (a *ancestry) add(parent int, ordinal uint16) {
	a.parents = append(a.parents, uint32(parent))
	a.ordinals = append(a.ordinals, ordinal)
}

func (a *ancestry) path(state int) []uint16 {
	var path []uint16
	for state != 0 {
		path = append(path, a.ordinals[state])
		state = int(a.parents[state])
	}
	for i, j := 0, len(path)-1; i < j; i, j = i+1, j-1 {
		path[i], path[j] = path[j], path[i]
	}
	return path
}

// retrace takes the same steps again, and tells them.
func retrace[S any](sys System[S], path []uint16) []string {
	var told []string
	s := sys.Start()
	for _, wanted := range path {
		ordinal, taken := uint16(0), s
		var name string
		sys.Next(&s, func(step Step, to *S) {
			if ordinal == wanted {
				taken, name = *to, sys.Tell(step)
			}
			ordinal++
		})
		s = taken
		told = append(told, name)
	}
	return told
}

// keySet is a set of keys in open addressing: 8 bytes a key, and room for as many again.
type keySet struct {
	slots []uint64 // 0: empty
	shift int      // a key's product with mixA, without so many bits, is its first slot
	zero  bool
	count int
}

func newKeySet() *keySet { return &keySet{slots: make([]uint64, 1<<16), shift: 64 - 16} }

func (k *keySet) add(key uint64) (isNew bool) {
	if key == 0 {
		isNew, k.zero = !k.zero, true
		return isNew
	}
	if 2*k.count >= len(k.slots) {
		old := k.slots
		k.slots = make([]uint64, 2*len(old))
		k.shift--
		for _, one := range old {
			if one != 0 {
				k.place(one)
			}
		}
	}
	if !k.place(key) {
		return false
	}
	k.count++
	return true
}

//go:norace
func (k *keySet) place(key uint64) bool {
	mask := uint64(len(k.slots) - 1)
	for at := key * mixA >> k.shift; ; at = (at + 1) & mask {
		switch k.slots[at] {
		case key:
			return false
		case 0:
			k.slots[at] = key
			return true
		}
	}
}
