package chaos

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/chaos/record"
)

// TestWhoHasSweptWell: a Consumer that had begun to work a lease before, whom nothing disturbed, and nobody else.
func TestWhoHasSweptWell(t *testing.T) {
	t.Parallel()
	const second = int64(1_000_000)
	swept := func(change func(b *book, p *process)) bool {
		p := &process{name: "w", slots: 1, first: second, last: 10 * second, bounds: []bounds{{0, 0}}}
		b := &book{lease: second, procs: []*process{p}, ofProcess: map[string][]*window{}}
		change(b, p)
		return b.sweptWell(3*second, 4*second)
	}
	require.True(t, swept(func(*book, *process) {}))
	for name, change := range map[string]func(b *book, p *process){
		"it has started no handler yet": func(_ *book, p *process) { p.first = 0 },
		"it had just begun":             func(_ *book, p *process) { p.first = 2*second + 1 },
		"it was gone":                   func(_ *book, p *process) { p.last = 4*second - 1 },
		"it is no Consumer":             func(_ *book, p *process) { p.slots = 0 },
		"it stood still":                func(_ *book, p *process) { p.pauses = []span{{3*second + 1, 3*second + 2}} },
		"its time is not known":         func(_ *book, p *process) { p.bounds[0] = bounds{-1 << 63, 1<<63 - 1} },
		"a fault of its own had just ended": func(b *book, p *process) {
			b.ofProcess["w"] = []*window{{from: 2 * second, to: 3*second - 1, fault: &fault{effects: []string{record.Cut}}}}
		},
	} {
		require.False(t, swept(change), name)
	}
}
