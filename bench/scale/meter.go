package main

import (
	"context"
	"fmt"
	"time"
)

// A sample is one call.
type sample struct {
	client time.Duration // from before the call to after its answer, with what the library does before and after
	server time.Duration // that the server was busy with the script, by its own clock: usec of INFO commandstats
	ran    time.Duration // that the server's thread had the processor for meanwhile, reading and writing included
	alone  bool          // ran is known
}

// own is what the call took of the server at most: a script that was kept from the processor took no longer for it, and
// one that slept in the kernel would not be counted as running.
func (s *sample) own() time.Duration {
	if s.alone {
		return min(s.server, s.ran)
	}
	return s.server
}

// A meter measures calls that are made one after the other, by their names and numbers of jobs.
type meter struct {
	server  *server
	last    commandStat
	samples map[callKey][]sample
}

type callKey struct {
	op    string
	batch int
}

func newMeter(ctx context.Context, s *server) (*meter, error) {
	m := &meter{server: s, samples: map[callKey][]sample{}}
	return m, m.skip(ctx)
}

// skip leaves out what was called since the last measured call.
func (m *meter) skip(ctx context.Context) (err error) {
	m.last, err = m.server.scripts(ctx)
	return err
}

func (m *meter) call(ctx context.Context, op string, batch int, do func() error) error {
	before, alone := turnOf(m.server.Pid())
	at := time.Now()
	err := do()
	took := time.Since(at)
	after, _ := turnOf(m.server.Pid())
	if err != nil {
		return fmt.Errorf("%s of %d: %w", op, batch, err)
	}
	now, err := m.server.scripts(ctx)
	if err != nil {
		return err
	}
	last := m.last
	m.last = now
	if now.calls != last.calls+1 {
		return nil // the first call of a session opens it, and a call can be repeated: nothing is known of each
	}
	key := callKey{op, batch}
	m.samples[key] = append(m.samples[key], sample{
		client: took, server: time.Duration(now.usec-last.usec) * time.Microsecond, ran: after.ran - before.ran, alone: alone,
	})
	return nil
}

// forget drops what was measured so far, as of the first calls on a server.
func (m *meter) forget() { clear(m.samples) }
