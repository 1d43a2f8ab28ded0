package main

import (
	"log/slog"
	"sync"
	"time"
)

// adviseEvery is how far apart two lines about the same problem are at least.
const adviseEvery = 10 * time.Minute

// An advisor says what would be right when something begins to fail that somebody has to change: a password, an ACL, a
// certificate. That something fails is told by the reaper, more often.
type advisor struct {
	endpoint *endpoint
	logger   *slog.Logger
	now      func() time.Time

	mu   sync.Mutex
	told map[string]time.Time // problem → when it was told last
}

func newAdvisor(e *endpoint, logger *slog.Logger) *advisor {
	return &advisor{endpoint: e, logger: logger, now: time.Now, told: map[string]time.Time{}}
}

// note takes one error. Before the first connection it says nothing, since introduce does.
func (a *advisor) note(err error) {
	if !a.endpoint.connected.Load() {
		return
	}
	d := a.endpoint.diagnose(err)
	if d.advice == "" {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	if last, before := a.told[d.problem]; before && now.Sub(last) < adviseEvery {
		return
	}
	a.told[d.problem] = now
	a.logger.Warn("somebody has to change something, or jobs stay where they are", attributes(a.endpoint, d, err)...)
}
