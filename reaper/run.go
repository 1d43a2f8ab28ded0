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
	failures := 0
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-f.fatal:
			return err
		case <-timer.C:
		}
		pause := r.opts.RefreshEvery
		names, err := r.queues(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			failures = 0
			f.follow(ctx, names)
		default:
			f.failed("", err)
			pause = pauseAfter(failures, r.opts.RefreshEvery)
			failures++
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
