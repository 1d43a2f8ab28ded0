package lease

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/leaseq/leaseq/internal/callback"
)

// maxOutstanding is how many extend calls for the same leases may wait for an answer at a time: a call into a dead
// connection must not keep the next one from trying another.
const maxOutstanding = 4

// Run extends and watches until ctx ends, and returns nil when no call of its own is under way any more. It must be
// running while anything is held: what is still held when ctx ends is neither extended nor watched any more, and its
// context ends then, with cause [ErrClosed].
func (k *Keeper) Run(ctx context.Context) error {
	k.mu.Lock()
	k.ended = false
	k.mu.Unlock()
	k.pulse.Begin()
	k.pulse.Worked() // nothing is held yet
	var loops sync.WaitGroup
	loops.Go(func() { every(ctx, k.look, k.watch) })
	if !k.opts.NoExtend {
		loops.Go(func() { every(ctx, k.kick, func() time.Duration { return k.beat(ctx) }) })
	}
	loops.Wait()
	k.letGo()
	k.calls.Wait()
	return nil
}

// letGo ends the contexts of what is still held.
func (k *Keeper) letGo() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ended = true
	for h := range k.held {
		h.ctx.Cancel(ErrClosed)
	}
	clear(k.held)
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

// watch ends what is past its local deadline; never behind a call, nor behind the log.
func (k *Keeper) watch() time.Duration {
	now := time.Now()
	var over []*Hold
	k.mu.Lock()
	defer k.mu.Unlock()
	k.watchAt = time.Time{}
	for h := range k.held {
		next, ended := h.due(now)
		if ended {
			delete(k.held, h)
			over = append(over, h)
		}
		if !next.IsZero() && (k.watchAt.IsZero() || next.Before(k.watchAt)) {
			k.watchAt = next
		}
	}
	if len(over) > 0 {
		k.calls.Go(func() { k.tellOver(over) })
	}
	if k.watchAt.IsZero() {
		return idle
	}
	return max(time.Until(k.watchAt), 0)
}

func (k *Keeper) tellOver(over []*Hold) {
	for _, h := range over {
		k.opts.Logger.Warn("a lease ran out before it could be renewed", "queue", k.store.Queue(), "id", h.held.ID)
	}
}

// beat has all that is held extended, if the time has come. It waits for no answer: a batch without one holds up no
// other.
func (k *Keeper) beat(ctx context.Context) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.held) == 0 {
		k.beatAt = time.Time{}
	}
	if k.beatAt.IsZero() {
		return idle
	}
	if wait := time.Until(k.beatAt); wait > 0 {
		return wait
	}
	k.beatAt = time.Time{} // an answered batch says when the next beat is due, and so does what is held from now on
	length := k.length
	for _, chunk := range k.chunks() {
		k.calls.Go(func() { k.renewed(chunk, k.renew(ctx, chunk, length)) })
	}
	return idle
}

// renewed notes that a batch was answered, or that nothing of it is to be extended any more (zero).
func (k *Keeper) renewed(chunk []*Hold, got Extended) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, h := range chunk {
		h.renewing = false
	}
	if got.Length <= 0 {
		return
	}
	k.length = got.Length
	sent := got.Deadline.Add(-got.Length)
	if next := sent.Add(got.Length / 3); k.beatAt.IsZero() || next.Before(k.beatAt) {
		k.beatAt = next
		nudge(k.kick)
	}
}

// chunks lists what is to be extended and is not being extended yet, in batches. The caller holds the lock.
func (k *Keeper) chunks() [][]*Hold {
	var all []*Hold
	for h := range k.held {
		if !h.renewing && h.extendable() {
			h.renewing = true
			all = append(all, h)
		}
	}
	return slices.Collect(slices.Chunk(all, k.opts.Batch))
}

func (h *Hold) extendable() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.state == HoldCurrent && !h.stopped && !h.done
}

func stillExtendable(chunk []*Hold) []*Hold {
	var still []*Hold
	for _, h := range chunk {
		if h.extendable() {
			still = append(still, h)
		}
	}
	return still
}

// retryGap is how far apart the tries of a failed call are at most.
func retryGap(length time.Duration) time.Duration {
	return max(min(length/20, 200*time.Millisecond), time.Millisecond)
}

// errNoAnswer is what keeps a beat from working while its call waits for longer than it should.
var errNoAnswer = errors.New("no answer yet")

type extendAnswer struct {
	Extended
	holds []*Hold
	err   error
}

// try extends a batch once, by one of the two ways.
func (k *Keeper) try(ctx context.Context, holds []*Hold, extend func(context.Context, time.Duration, []Held) (Extended, error)) extendAnswer {
	held := make([]Held, len(holds))
	for i, h := range holds {
		held[i] = h.Held()
	}
	got, err := extend(ctx, k.opts.Length, held)
	return extendAnswer{Extended: got, holds: holds, err: err}
}

// renew extends one batch until it is answered, or nothing of it is to be extended any more; each try names only what
// still is. A try that waits long for its answer gets company: extend is safe to run twice.
func (k *Keeper) renew(ctx context.Context, chunk []*Hold, length time.Duration) Extended {
	answers := make(chan extendAnswer, maxOutstanding)
	outstanding, tries, failing := 0, 0, false
	fails := func(err error) {
		k.pulse.Failed(err)
		if !failing {
			failing = true
			k.failing.Add(1)
		}
	}
	defer func() {
		if failing && k.failing.Add(-1) == 0 {
			k.pulse.Worked() // what failed is renewed, or over
		}
	}()
	gap, patience := retryGap(length), max(length/6, 50*time.Millisecond)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return Extended{}
		case got := <-answers:
			outstanding--
			if got.err == nil {
				k.digest(got)
				return got.Extended
			}
			fails(got.err)
			if muted, ok := k.quiet.Loud(); ok {
				k.opts.Logger.Warn("extending leases failed", "queue", k.store.Queue(), "leases", len(got.holds), "error", got.err, "muted_failures", muted)
			}
			k.report(Beat{Held: len(got.holds), Err: got.err})
			timer.Reset(gap)
		case <-timer.C:
			still := stillExtendable(chunk)
			if len(still) == 0 {
				return Extended{}
			}
			if outstanding > 0 {
				fails(errNoAnswer)
			}
			if outstanding < maxOutstanding {
				extend := k.extend
				switch {
				case tries%2 == 1:
					extend = k.company
				case tries > 0:
					extend = k.again
				}
				outstanding++
				tries++
				k.calls.Go(func() { answers <- k.try(ctx, still, extend) })
			}
			timer.Reset(patience)
		}
	}
}

func (k *Keeper) digest(got extendAnswer) {
	k.pulse.Worked()
	beat := Beat{Held: len(got.holds)}
	var lost []*Hold
	for i, h := range got.holds {
		if h.answer(got.Results[i], got.Deadline) {
			lost = append(lost, h)
		} else if got.Results[i] == nil {
			beat.Extended++
		}
	}
	beat.Lost = len(lost)
	k.drop(lost)
	k.report(beat)
}

func (k *Keeper) report(beat Beat) {
	if k.opts.OnBeat != nil {
		callback.Run("OnBeat", func() { k.opts.OnBeat(beat) }) // without its goroutine these leases were not extended again
	}
}
