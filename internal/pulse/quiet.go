package pulse

import (
	"sync"
	"time"
)

// LogEvery is how far apart the lines about one kind of failure are at least: in an outage a loop fails several times a
// second.
const LogEvery = 10 * time.Second

// A Quiet keeps a log readable. The zero value is ready.
type Quiet struct {
	mu    sync.Mutex
	loud  time.Time
	muted int
}

// Loud reports whether a line may be written now, and how many were left out since the last one.
func (q *Quiet) Loud() (muted int, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if now := time.Now(); q.loud.IsZero() || now.Sub(q.loud) >= LogEvery {
		muted = q.muted
		q.loud, q.muted = now, 0
		return muted, true
	}
	q.muted++
	return 0, false
}
