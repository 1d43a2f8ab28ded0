package reaper

import (
	"log/slog"
	"sync"
	"time"
)

// troubleEvery is how far apart the lines about failed calls are at least, and how long nothing must fail until that
// is said: in an outage every sweeper fails several times a second.
const troubleEvery = 10 * time.Second

// troubles logs failures, a few of them.
type troubles struct {
	logger *slog.Logger
	now    func() time.Time

	mu     sync.Mutex
	loud   time.Time // of the last line
	last   time.Time // of the last failure; zero: all is well
	muted  int       // failures since the last line
	queues map[string]bool
}

func newTroubles(logger *slog.Logger) *troubles {
	return &troubles{logger: logger, now: time.Now, queues: map[string]bool{}}
}

// note takes one failure; queue "" is the registry.
func (t *troubles) note(queue string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	well := t.last.IsZero()
	t.last = now
	t.queues[queue] = true
	if !well && now.Sub(t.loud) < troubleEvery {
		t.muted++
		return
	}
	what := "a sweep failed, and is repeated"
	if queue == "" {
		what = "the registry of queues cannot be read, which is repeated; known queues are swept on"
	}
	t.logger.Warn(what, "queue", queue, "error", err, "failed_queues", len(t.queues), "muted_failures", t.muted)
	t.loud, t.muted = now, 0
	clear(t.queues)
}

// look says that the troubles are over, once nothing has failed for a while.
func (t *troubles) look() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last.IsZero() || t.now().Sub(t.last) < troubleEvery {
		return
	}
	t.logger.Info("nothing has failed any more", "for", t.now().Sub(t.last).Round(time.Second), "muted_failures", t.muted)
	t.last, t.muted = time.Time{}, 0
	clear(t.queues)
}
