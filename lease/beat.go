package lease

import (
	"context"
	"sync"
	"time"
)

// maxOutstanding is how many extend calls for the same leases may wait for an answer at a time: a call into a dead
// connection must not keep the next one from trying another.
const maxOutstanding = 4

// Run extends and watches until ctx ends, and returns nil when no call of its own is under way any more. It must be
// running while anything is held: what is still held when it returns is neither extended nor watched.
func (k *Keeper) Run(ctx context.Context) error {
	var loops sync.WaitGroup
	loops.Go(func() { every(ctx, k.look, k.watch) })
	if !k.opts.NoExtend {
		loops.Go(func() { every(ctx, k.kick, func() time.Duration { return k.beat(ctx) }) })
	}
	loops.Wait()
	k.calls.Wait()
	return nil
}

// every runs work whenever the time has come that work itself gave, or a signal says that the time has changed.
func every(ctx context.Context, signal <-chan struct{}, work func() time.Duration) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-signal:
		case <-timer.C:
		}
		timer.Reset(work())
	}
}

const idle = time.Hour // nothing is held: a signal comes first

// watch ends what is past its local deadline; never behind a call.
func (k *Keeper) watch() time.Duration {
	now := time.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.watchAt = time.Time{}
	for h := range k.held {
		next, over := h.due(now)
		if over {
			k.opts.Logger.Warn("a lease ran out before it could be renewed", "queue", k.store.Queue(), "id", h.held.ID)
		}
		if !next.IsZero() && (k.watchAt.IsZero() || next.Before(k.watchAt)) {
			k.watchAt = next
		}
	}
	if k.watchAt.IsZero() {
		return idle
	}
	return max(time.Until(k.watchAt), 0)
}

// beat extends everything that is held, if the time has come.
func (k *Keeper) beat(ctx context.Context) time.Duration {
	k.mu.Lock()
	wait := time.Until(k.beatAt)
	if len(k.held) == 0 {
		k.beatAt = time.Time{}
		wait = idle
	}
	length := k.length
	var chunks [][]*Hold
	if wait <= 0 {
		chunks = k.chunks()
	}
	k.mu.Unlock()
	if wait > 0 {
		return wait
	}
	sent := time.Now()
	var all sync.WaitGroup
	var mu sync.Mutex
	answered := true
	for _, chunk := range chunks {
		all.Go(func() {
			told, ok := k.renew(ctx, chunk, length)
			mu.Lock()
			defer mu.Unlock()
			answered = answered && ok
			if ok && told > 0 {
				length = told
			}
		})
	}
	all.Wait()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.length = length
	k.beatAt = sent.Add(length / 3)
	if !answered {
		k.beatAt = time.Now().Add(retryGap(length))
	}
	return max(time.Until(k.beatAt), 0)
}

// chunks lists what is to be extended, in batches. The caller holds the lock.
func (k *Keeper) chunks() [][]*Hold {
	var out [][]*Hold
	var chunk []*Hold
	for h := range k.held {
		if !h.extendable() {
			continue
		}
		chunk = append(chunk, h)
		if len(chunk) == k.opts.Batch {
			out, chunk = append(out, chunk), nil
		}
	}
	if len(chunk) > 0 {
		out = append(out, chunk)
	}
	return out
}

func (h *Hold) extendable() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.state == HoldCurrent && !h.stopped
}

// retryGap is how far apart the tries of a failed call are at most.
func retryGap(length time.Duration) time.Duration {
	return max(min(length/20, 200*time.Millisecond), time.Millisecond)
}

type extendAnswer struct {
	Extended
	err error
}

// renew extends one batch until it is answered, or none of it is held any more. A try that waits long for its answer
// gets company: extend is safe to run twice.
func (k *Keeper) renew(ctx context.Context, chunk []*Hold, length time.Duration) (told time.Duration, ok bool) {
	held := make([]Held, len(chunk))
	for i, h := range chunk {
		held[i] = h.held
	}
	answers := make(chan extendAnswer, maxOutstanding)
	outstanding := 0
	try := func() {
		if outstanding == maxOutstanding {
			return
		}
		outstanding++
		k.calls.Go(func() {
			got, err := k.extend(context.WithoutCancel(ctx), k.opts.Length, held)
			answers <- extendAnswer{got, err}
		})
	}
	gap, patience := retryGap(length), max(length/6, 50*time.Millisecond)
	try()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for anyExtendable(chunk) {
		select {
		case <-ctx.Done():
			return 0, false
		case got := <-answers:
			outstanding--
			if got.err == nil {
				k.digest(chunk, got.Extended)
				return got.Length, true
			}
			k.opts.Logger.Warn("extending leases failed", "queue", k.store.Queue(), "leases", len(held), "error", got.err)
			k.report(Beat{Held: len(held), Err: got.err})
			timer.Reset(gap)
		case <-timer.C:
			try()
			timer.Reset(patience)
		}
	}
	return 0, false
}

func anyExtendable(chunk []*Hold) bool {
	for _, h := range chunk {
		if h.extendable() {
			return true
		}
	}
	return false
}

func (k *Keeper) digest(chunk []*Hold, got Extended) {
	beat := Beat{Held: len(chunk)}
	for i, h := range chunk {
		if h.answer(got.Results[i], got.Deadline) {
			beat.Lost++
		} else if got.Results[i] == nil {
			beat.Extended++
		}
	}
	k.report(beat)
}

func (k *Keeper) report(beat Beat) {
	if k.opts.OnBeat != nil {
		k.opts.OnBeat(beat)
	}
}
