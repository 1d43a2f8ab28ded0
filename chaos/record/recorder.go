package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Options are the settings of a Recorder. Queue is required.
type Options struct {
	// Queue is the name of the queue that is recorded. Events of other queues are not written.
	Queue string
	// Process is the name of the process in the history, different from all others' of a run. Default <host>/<pid>.
	Process string
	// Slots is the Concurrency of the Consumer that is recorded. Default 0: not known, or none; whether a slot was free
	// is not judged then.
	Slots int
	// Lease is the queue's lease. Default 0: not known to this process; one process of a run must say it.
	Lease time.Duration
	// NoExtend says that the Consumer does not extend its leases.
	NoExtend bool
}

// A Recorder writes what one process sees of one queue to a file. It is safe for concurrent use. A write that fails is
// not tried again: [Recorder.Err] and Close tell of the first. A nil *Recorder writes nothing.
type Recorder struct {
	opts  Options
	file  *os.File
	began time.Time
	calls atomic.Int64
	stop  chan struct{}
	ended chan struct{}

	mu      sync.Mutex
	closed  bool
	failure error
}

// tick is how often the Recorder looks whether its process stands still, and late by how much it must be to tell.
const (
	tick = 50 * time.Millisecond
	late = 100 * time.Millisecond
)

// Open begins a file, which must not exist, and a goroutine that notices when the process stands still: Close ends it.
func Open(path string, o *Options) (*Recorder, error) {
	if o == nil || o.Queue == "" {
		return nil, errors.New("record: Options.Queue is empty: name the queue")
	}
	r := &Recorder{opts: *o, stop: make(chan struct{}), ended: make(chan struct{})}
	var errs []error
	if r.opts.Slots < 0 {
		errs = append(errs, fmt.Errorf("Slots is %d: want 0 or more", r.opts.Slots))
	}
	if r.opts.Lease < 0 {
		errs = append(errs, fmt.Errorf("Lease is %v: want 0 or more", r.opts.Lease))
	}
	if r.opts.Process == "" {
		host, err := os.Hostname()
		errs = append(errs, err)
		r.opts.Process = fmt.Sprintf("%s/%d", host, os.Getpid())
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	r.file, r.began = file, time.Now()
	r.Write(&Event{
		Kind: Opened, Version: Version, Process: r.opts.Process, Queue: r.opts.Queue, Wall: r.began.UnixMicro(),
		Lease: r.opts.Lease.Milliseconds(), Slots: r.opts.Slots, NoExtend: r.opts.NoExtend,
	})
	if err := r.Err(); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	go r.watch()
	return r, nil
}

// Close writes the last line and ends the file. Nothing is written after it. It returns the first error of any write.
func (r *Recorder) Close() error {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	if r.closed {
		defer r.mu.Unlock()
		return r.failure
	}
	r.write(&Event{Kind: Closed, At: r.since(time.Now())})
	r.closed = true
	err := r.file.Close()
	if r.failure == nil && err != nil {
		r.failure = fmt.Errorf("record: %w", err)
	}
	failure := r.failure
	r.mu.Unlock()
	close(r.stop)
	<-r.ended
	return failure
}

// Err is the first error of a write: a history with one has a hole.
func (r *Recorder) Err() error {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failure
}

// Since is a time of this process as the file has it, in µs.
func (r *Recorder) since(t time.Time) int64 {
	if r == nil {
		return 0
	}
	return t.Sub(r.began).Microseconds()
}

// Write writes one event as it is, but for At, which is now where it is 0. It is meant for whoever makes faults, and for
// tests; what a worker needs has methods of its own.
func (r *Recorder) Write(e *Event) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.At == 0 {
		e.At = r.since(time.Now())
	}
	r.write(e)
}

func (r *Recorder) write(e *Event) {
	if r.closed || r.failure != nil {
		return
	}
	line, err := json.Marshal(e)
	if err == nil {
		_, err = r.file.Write(append(line, '\n'))
	}
	if err != nil {
		r.failure = fmt.Errorf("record: %w", err)
	}
}

// watch tells when the process stood still: stopped by a signal, or not scheduled for long.
func (r *Recorder) watch() {
	defer close(r.ended)
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	last := time.Now()
	for {
		select {
		case <-r.stop:
			return
		case <-ticker.C:
		}
		now := time.Now()
		if now.Sub(last) > tick+late {
			r.Write(&Event{Kind: Paused, At: max(r.since(last), 1), Until: r.since(now)})
		}
		last = now
	}
}

// ServerTime writes what the server's clock said to a call that was sent at before and answered at after. Processes that
// run no handlers need it a few times, so that their times can be compared with the server's.
func (r *Recorder) ServerTime(before, after, server time.Time) {
	r.Write(&Event{Kind: Clocked, At: max(r.since(before), 1), Until: r.since(after), Server: server.UnixMicro()})
}

// A Sweep is what a sweeper's call did.
type Sweep struct {
	ToDue, ToDead, Cancelled int
	Grace                    time.Duration // for which holders are still spared
}

// Swept writes what a sweeper's call did. Calls that did nothing, without a grace, need no line.
func (r *Recorder) Swept(s Sweep) {
	r.Write(&Event{Kind: Swept, Expired: s.ToDue + s.ToDead, Died: s.ToDead, Removed: s.Cancelled, Grace: s.Grace.Milliseconds()})
}
