package chaos

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/leaseq/leaseq/chaos/record"
	"github.com/leaseq/leaseq/internal/netfault"
)

// linkFaults are those of the way between one worker, or all producers, and Redis: rows 5, 7 and 8.
func linkFaults() []Fault {
	return []Fault{
		{
			Name: "reply-drop", Row: 5, Lane: Links, Available: needLinks,
			What:   "the first reply, and one in 20 after it, to a worker and to the producers is lost after the server ran the command",
			Leases: [2]float64{0.5, 2}, Inject: dropReplies,
		},
		{
			Name: "cut-off", Row: 7, Lane: Links, Available: needLinks,
			What:   "a worker's packets go nowhere, in both directions, for longer than its leases",
			For:    [2]time.Duration{100 * time.Millisecond, 300 * time.Millisecond},
			Leases: [2]float64{1, 1.6}, Inject: cutOff,
		},
		{
			Name: "reply-delay", Row: 8, Lane: Links, Available: needLinks,
			What:   "each packet between a worker and Redis takes up to an eighth of the lease longer",
			Leases: [2]float64{0.5, 1.5}, Inject: delayReplies,
		},
		{
			Name: "one-byte", Row: 8, Lane: Links, Available: needLinks,
			What:   "all data between a worker and Redis comes in packets of one byte",
			Leases: [2]float64{0.3, 1}, Inject: oneByte,
		},
	}
}

// dropReplies loses replies of a worker's and of the producers' connections.
func dropReplies(ctx context.Context, in *Injection) error {
	p, err := in.Take(ctx, in.Rand, 0)
	if err != nil {
		return err
	}
	defer in.GiveBack(p)
	in.Begin(p.Name(), 0, record.Lossy)
	in.Begin("harness", 0, record.Lossy)
	links := []*netfault.Proxy{p.link, in.storm.link}
	before := links[0].Dropped() + links[1].Dropped()
	for i, link := range links {
		link.Decide(sometimesDrop(rand.New(rand.NewPCG(in.planned.Pick, uint64(i)))))
	}
	in.Wait(ctx, in.For)
	for _, link := range links {
		link.Decide(nil)
	}
	if links[0].Dropped()+links[1].Dropped() > before {
		in.Bites()
	}
	return nil
}

// sometimesDrop drops the replies to the first command that runs a script, and to one in 20 after it.
func sometimesDrop(rng *rand.Rand) func([]string) netfault.Action {
	var mu sync.Mutex
	first := true
	return func(cmd []string) netfault.Action {
		mu.Lock()
		defer mu.Unlock()
		if len(cmd) > 1 && (equalFold(cmd[0], "evalsha") || equalFold(cmd[0], "eval")) && (first || rng.IntN(20) == 0) {
			first = false
			return netfault.DropReply
		}
		return netfault.Pass
	}
}

// cutOff swallows everything between a worker and Redis.
func cutOff(ctx context.Context, in *Injection) error {
	p, err := in.Take(ctx, in.Rand, 2)
	if err != nil {
		return err
	}
	defer in.GiveBack(p)
	in.Until(ctx, 2*in.Lease(), func() bool { return p.Busy() > 0 })
	in.Begin(p.Name(), 0, record.Cut, record.Lossy)
	busy := p.Busy()
	p.link.BlackHole(true)
	if busy > 0 {
		in.Bites()
	}
	in.Wait(ctx, in.For)
	p.link.BlackHole(false)
	return nil
}

func delayReplies(ctx context.Context, in *Injection) error {
	delay := time.Millisecond + time.Duration(in.Rand.Int64N(int64(in.Lease()/8)))
	return in.worsen(ctx, func(link *netfault.Proxy) { link.Delay(delay) }, func(link *netfault.Proxy) { link.Delay(0) })
}

func oneByte(ctx context.Context, in *Injection) error {
	return in.worsen(ctx, func(link *netfault.Proxy) { link.Chunk(1) }, func(link *netfault.Proxy) { link.Chunk(0) })
}

// worsen makes a worker's link bad for a while. It bites if commands came over it meanwhile.
func (in *Injection) worsen(ctx context.Context, bad, good func(*netfault.Proxy)) error {
	p, err := in.Take(ctx, in.Rand, 0)
	if err != nil {
		return err
	}
	defer in.GiveBack(p)
	in.Begin(p.Name(), 0, record.Lossy)
	before := p.link.Commands()
	bad(p.link)
	in.Wait(ctx, in.For)
	if p.link.Commands() > before {
		in.Bites()
	}
	good(p.link)
	return nil
}
