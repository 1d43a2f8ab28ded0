package script

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

// How long an answer is waited for at least until the call is repeated without it, and how many tries of one flight may be
// under way then. A connection that died without a word is found out by the client only after its ReadTimeout, one
// connection of its pool after the other; the second try goes out on a connection of our own. The wait doubles with each
// try of a flight that was given up, and is twice as long as the last call took: a server that is only slow must be able
// to answer before the next try makes its answer void.
const (
	silence      = time.Second
	mostAttempts = 4

	longestSilence = 30 * time.Second
)

// errSilent is what a try has ended with whose answer is not waited for any more. It may have run, and may run yet.
var errSilent = errors.New("no answer for a while: asked again on another connection")

// attempts are the tries of one flight. What comes of one that is not the last is not wanted any more: it is as if
// its reply had been lost.
type attempts struct {
	s       *Sessions
	last    int // the number of the last try
	out     int // how many are under way
	failed  int // how many had no answer in time, one after the other
	wait    time.Duration
	now     []*Request
	answers chan attempt
}

type attempt struct {
	number   int
	requests []*Request
}

func newAttempts(s *Sessions) *attempts {
	wait := min(max(silence, 2*time.Duration(s.lastTrip.Load())), longestSilence)
	return &attempts{s: s, wait: wait, answers: make(chan attempt, mostAttempts)}
}

// send begins a try: after one that had no answer in time, on a connection of our own, and so in turns.
func (t *attempts) send(ctx context.Context, requests []*Request) {
	t.last++
	t.out++
	t.now = requests
	one := attempt{number: t.last, requests: requests}
	send := t.s.runner.Send
	if t.failed%2 == 1 {
		send = t.s.runner.SendAside
	}
	t.s.trying.run(func() {
		send(ctx, one.requests...)
		t.answers <- one
	})
}

// await returns the requests of the last try with their answers and errors, or nil if left ended first.
func (t *attempts) await(left <-chan struct{}) []*Request {
	timer := time.NewTimer(t.wait)
	defer timer.Stop()
	tired := timer.C
	for {
		if t.out == mostAttempts {
			tired = nil // enough company: one of them must end first
		}
		select {
		case got := <-t.answers:
			t.out--
			if got.number != t.last {
				tired = timer.C
				continue
			}
			t.note(got.requests)
			return got.requests
		case <-tired:
			if t.failed%2 == 0 {
				t.s.runner.link.doubt()
			}
			t.wait = min(2*t.wait, longestSilence)
			return t.silent()
		case <-t.s.ctx.Done():
			return t.silent()
		case <-left:
			return nil
		}
	}
}

// note keeps count of the tries that had no answer in time.
func (t *attempts) note(requests []*Request) {
	for _, req := range requests {
		if req.Err == nil {
			continue
		}
		var network net.Error
		if errors.As(req.Err, &network) && network.Timeout() || errors.Is(req.Err, redis.ErrPoolTimeout) || errors.Is(req.Err, redis.ErrPoolExhausted) {
			t.failed++
			return
		}
	}
	t.failed = 0
	if what, _ := classify(requests[0].Err); what == unknown {
		return // an end of the stream, say, which tells nothing about how long an answer takes
	}
	t.s.lastTrip.Store(int64(time.Since(requests[0].SentAt)))
}

// silent makes what stands for the last try, whose own requests are still in use.
func (t *attempts) silent() []*Request {
	t.failed++
	out := make([]*Request, len(t.now))
	for i, req := range t.now {
		out[i] = &Request{Script: req.Script, Session: req.Session, Number: req.Number, Args: req.Args, Err: errSilent}
	}
	return out
}
