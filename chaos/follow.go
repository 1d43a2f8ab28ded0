package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/leaseq/leaseq/chaos/record"
)

// Progress is how far a run is, as its histories tell so far.
type Progress struct {
	Phase   string        // "storm", "calm", "drain" or "check"
	Elapsed time.Duration // since the run began
	Total   time.Duration // its Duration

	Enqueued, Acked, Dead int64
	Outstanding           int64 // enqueued, and neither acked nor dead yet
	Kills, Stops, Faults  int64 // SIGKILLs of workers, SIGSTOPs of workers, faults of all kinds
	Expired               int64 // leases that ran out, as the starts after them tell
	// Violations that are seen at once: a fence that was given twice, a job that is started after its ack was answered.
	// All others are found at the end.
	Violations int64
	Under      []string // the faults that last now
}

// A Second is what happened in one second of a run.
type Second struct {
	Enqueued int64 `json:"enqueued"`
	Started  int64 `json:"started"`
	Acked    int64 `json:"acked"`
	Failed   int64 `json:"failed"`  // retried, or dead
	Expired  int64 `json:"expired"` // starts of jobs whose lease before had run out
}

// A follower reads the histories while they are written.
type follower struct {
	began time.Time

	mu      sync.Mutex
	files   []*followed
	byName  map[string]*followed
	fences  lately[int64, bool]
	acked   lately[string, ack] // by ID
	loses   map[int64]bool      // faults that last, and let Redis forget, by number
	forget  int                 // for so many looks acks are not kept yet
	ids     []string            // some that were enqueued lately, and those that died
	dead    []string
	count   Progress
	seconds []Second
}

// A followed is one file.
type followed struct {
	name    string
	path    string
	offset  int64
	rest    []byte
	opened  bool            // its first line was read
	running map[int64]bool  // fences of handlers that run
	held    map[int64]int64 // by fence, until it is settled: when the job was enqueued, as its producer says
	calls   map[int64]string
}

// An ack that was answered.
type ack struct{ fence, enqueued int64 }

// lately is a map that forgets what was put into it long ago, so that a run of days has room.
type lately[K comparable, V any] struct{ now, before map[K]V }

// generation is how much of it is surely kept.
const generation = 200_000

func (l *lately[K, V]) put(key K, value V) {
	if l.now == nil || len(l.now) >= generation {
		l.now, l.before = map[K]V{}, l.now
	}
	l.now[key] = value
}

func (l *lately[K, V]) get(key K) (V, bool) {
	if value, ok := l.now[key]; ok {
		return value, true
	}
	value, ok := l.before[key]
	return value, ok
}

// recent is how many IDs are kept for whoever wants to do something to a job.
const recent = 512

func newFollower() *follower {
	return &follower{began: time.Now(), byName: map[string]*followed{}, loses: map[int64]bool{}}
}

// begin begins the seconds of the run.
func (f *follower) begin(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.began = now
}

func (f *follower) add(name, path string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	one := &followed{name: name, path: path, running: map[int64]bool{}, held: map[int64]int64{}, calls: map[int64]string{}}
	f.files = append(f.files, one)
	f.byName[name] = one
}

// busy is how many handlers run in a process, or ran when it died, by all that it has written so far.
func (f *follower) busy(name string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	one := f.byName[name]
	if one == nil {
		return 0
	}
	_ = f.read(one) // what is wrong with a history the next look says
	return len(one.running)
}

// await waits until a process has opened its history, for at most d.
func (f *follower) await(ctx context.Context, name string, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if f.opened(name) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// opened reports whether a process has opened its history, or is none that is followed.
func (f *follower) opened(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	one := f.byName[name]
	if one == nil {
		return true
	}
	_ = f.read(one) // what is wrong with a history the next look says
	return one.opened
}

// look reads what is new.
func (f *follower) look() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	losing := len(f.loses) > 0
	for _, one := range f.files {
		if err := f.read(one); err != nil {
			return err
		}
	}
	if losing || len(f.loses) > 0 {
		f.forget = 20 // two seconds: an answer from before may still be on its way, by a slow link
	}
	if f.forget > 0 {
		f.acked = lately[string, ack]{} // Redis may have forgotten any of them
		f.forget--
	}
	return nil
}

func (f *follower) read(one *followed) error {
	in, err := os.Open(one.path)
	if os.IsNotExist(err) {
		return nil // it is just starting
	}
	if err != nil {
		return err
	}
	defer in.Close()
	if _, err := in.Seek(one.offset, 0); err != nil {
		return err
	}
	buffer := make([]byte, 64<<10)
	for {
		n, err := in.Read(buffer)
		if n == 0 || err != nil {
			return nil
		}
		one.offset += int64(n)
		one.rest = append(one.rest, buffer[:n]...)
		for {
			end := bytes.IndexByte(one.rest, '\n')
			if end < 0 {
				break
			}
			var e record.Event
			if err := json.Unmarshal(one.rest[:end], &e); err == nil { // what is wrong with a line the check says
				f.take(one, &e)
			}
			one.rest = one.rest[end+1:]
		}
	}
}

func (f *follower) second() *Second {
	n := int(time.Since(f.began) / time.Second)
	for len(f.seconds) <= n {
		f.seconds = append(f.seconds, Second{})
	}
	return &f.seconds[n]
}

func (f *follower) take(one *followed, e *record.Event) {
	switch e.Kind {
	case record.Opened:
		one.opened = true
	case record.Called:
		if e.Op == record.OpEnqueue {
			one.calls[e.Call] = e.ID
		}
	case record.Answered:
		if id, ok := one.calls[e.Call]; ok && e.Out != record.OutUnknown {
			delete(one.calls, e.Call)
			if e.Out == record.OutOK {
				f.count.Enqueued++
				f.second().Enqueued++
				f.ids = keepLast(f.ids, id)
			}
		}
	case record.Started:
		f.started(one, e)
	case record.Returned:
		delete(one.running, e.Fence)
	case record.Settled:
		f.settled(one, e)
	case record.Closed:
		clear(one.running)
	case record.Faulted:
		if slices.Contains(e.Effects, record.Loses) {
			f.loses[e.Call] = true
		} else if e.Out == record.FaultEnd {
			delete(f.loses, e.Call)
		}
	}
}

func (f *follower) started(one *followed, e *record.Event) {
	one.running[e.Fence], one.held[e.Fence] = true, e.Enqueued
	f.second().Started++
	if given, _ := f.fences.get(e.Fence); given {
		f.count.Violations++
	}
	f.fences.put(e.Fence, true)
	if a, ok := f.acked.get(e.ID); ok && e.Fence > a.fence && e.Enqueued == a.enqueued {
		f.count.Violations++
	}
	if e.Expiries > 0 {
		f.second().Expired++
		f.count.Expired++
	}
}

func (f *follower) settled(one *followed, e *record.Event) {
	enqueued, ran := one.held[e.Fence]
	delete(one.running, e.Fence)
	delete(one.held, e.Fence)
	switch e.Out {
	case record.OutAcked:
		if ran {
			f.acked.put(e.ID, ack{e.Fence, enqueued})
		}
		f.count.Acked++
		f.second().Acked++
	case record.OutRetried:
		f.second().Failed++
	case record.OutDead:
		f.count.Dead++
		f.second().Failed++
		f.dead = keepLast(f.dead, e.ID)
	}
}

func keepLast(list []string, id string) []string {
	if len(list) >= 2*recent {
		list = slices.Delete(list, 0, recent)
	}
	return append(list, id)
}

// some returns up to n IDs of lately: of jobs that were enqueued, or that died.
func (f *follower) some(dead bool, n int) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := f.ids
	if dead {
		list = f.dead
	}
	return slices.Clone(list[max(0, len(list)-n):])
}

// forgetDead takes IDs off the list of the dead.
func (f *follower) forgetDead(ids []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dead = slices.DeleteFunc(f.dead, func(id string) bool { return slices.Contains(ids, id) })
}

// run looks until ctx ends.
func (f *follower) run(ctx context.Context, each func()) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		if err := f.look(); err != nil {
			return fmt.Errorf("the histories cannot be followed: %w", err)
		}
		if each != nil {
			each()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// busiest sorts posts by how many handlers run there, the most first; equal ones keep their order.
func busiest(posts []*Post) {
	n := map[*Post]int{}
	for _, p := range posts {
		n[p] = p.Busy()
	}
	slices.SortStableFunc(posts, func(x, y *Post) int { return n[y] - n[x] })
}
