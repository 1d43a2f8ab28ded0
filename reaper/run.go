package reaper

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"
)

// firstPause is what follows the first failed reading of the registry; it doubles up to RefreshEvery.
const firstPause = 50 * time.Millisecond

// patience is how long an answer about the registry is waited for until it is asked for again beside the call that has
// none, which may have gone into a dead connection; maxReadings is how many such calls may be under way.
const (
	patience    = time.Second
	maxReadings = 4
)

// reading is what a look into the registry has found.
type reading struct {
	number int // in the order in which they began
	names  []string
	err    error
}

func (f *fleet) read(number int, aside bool) reading {
	names, err := f.r.queues(f.ctx, f.link, aside)
	return reading{number, names, err}
}

// Run looks after the queues until ctx ends, and then returns nil. It survives every error of Redis and of the network:
// failed calls are repeated with a pause, and the queues that are known are swept on while the registry cannot be read.
// A queue that appears in the registry is swept from the next reading on. One that has left it is swept until no job of
// it is in processing any more.
//
// The only error comes from a client that was closed, since nothing could be done with it any more. When Run returns,
// none of its goroutines is left; a call under way is not cut off, so that this can take one read timeout of the client
// after ctx ended.
func (r *Reaper) Run(ctx context.Context) error {
	f := newFleet(ctx, r)
	defer f.stop()
	r.current.Store(f)
	defer r.current.CompareAndSwap(f, nil)
	failures, outstanding, begun, followed := 0, 0, 0, 0
	aside := true // the first reading shows whether connections of our own work
	readings := make(chan reading, maxReadings)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		pause := r.opts.RefreshEvery
		select {
		case <-ctx.Done():
			return nil
		case err := <-f.fatal:
			return err
		case <-timer.C:
			if outstanding < maxReadings {
				company := aside || outstanding > 0
				aside = false
				outstanding++
				begun++
				number := begun
				f.all.Go(func() { readings <- f.read(number, company) })
			}
			pause = patience
		case got := <-readings:
			outstanding--
			switch {
			case ctx.Err() != nil:
				return nil
			case got.err == nil:
				failures = 0
				f.registry.Worked()
				if got.number > followed { // else it tells what was before one that overtook it
					followed = got.number
					f.follow(ctx, got.names)
				}
			default:
				f.registry.Failed(got.err)
				f.failed("", got.err)
				pause = pauseAfter(failures, r.opts.RefreshEvery)
				failures++
			}
		}
		f.troubles.look()
		timer.Reset(pause)
	}
}

// pauseAfter is between half and the whole of a step that doubles with every failure, up to a limit.
func pauseAfter(failures int, limit time.Duration) time.Duration {
	step := min(firstPause<<min(failures, 10), limit)
	return step/2 + rand.N(step/2+1)
}

// closed is the error of Run where err says that the client was closed, else nil.
func closed(err error) error {
	if !errors.Is(err, redis.ErrClosed) {
		return nil
	}
	return fmt.Errorf("reaper: the Redis client was closed while Run needed it (end Run first): %w", err)
}
