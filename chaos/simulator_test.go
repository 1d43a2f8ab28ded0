package chaos

import (
	"cmp"
	"container/heap"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/leaseq/leaseq/chaos/record"
)

// A sim makes histories: a right queue with workers, producers and faults in a time of its own, from a seed. It knows
// nothing of the checker. Times are the server's, µs.
type sim struct {
	rng   *rand.Rand
	now   int64
	seq   int
	queue simQueue
	agent *simProcess // the harness: producer, operator, maker of faults
	all   []*simProcess
	live  []*simProcess
	jobs  map[string]*simJob
	due   []*simJob // sorted by due time and ID
	held  map[*simJob]bool
	fence int64
	stats map[string]int64
	calls int64
	open  int // jobs that are not finished
	made  int
	size  simSize

	down, swept, grace int64 // nobody reaches Redis until; of the sweeps
	row                int
}

type simSize struct {
	jobs, workers, slots int
	kills, freezes       int
	outages              int
	operators            bool // cancels, redrives, unknown enqueues
}

const (
	simLease = 1_000_000
	simStart = 1_700_000_000_000_000
	simTries = 3
)

type simJob struct {
	id                           string
	due, enqueued                int64
	failures, expiries, redrives int
	place                        string
	died                         int64
	fence, expiry                int64
	owner                        *simProcess
	cancelled                    bool
	running, told                int64 // the fence of the handler that runs; of the one whose context a cancel ended
	deadline                     int64 // the owner's, on the server's clock
}

type simProcess struct {
	Lines
	name   string
	offset int64
	busy   int
	dead   bool
	frozen int64 // until
}

type simEvent struct {
	at  int64
	seq int
	do  func()
}

type simQueue []simEvent

func (q simQueue) Len() int { return len(q) }
func (q simQueue) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].seq < q[j].seq
}
func (q simQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *simQueue) Push(x any)   { *q = append(*q, x.(simEvent)) }
func (q *simQueue) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}

func (s *sim) after(d int64, do func()) {
	s.seq++
	heap.Push(&s.queue, simEvent{s.now + d, s.seq, do})
}

// by does something in a process: not if it is dead, and later if it is frozen.
func (s *sim) by(p *simProcess, d int64, do func()) {
	s.after(d, func() {
		switch {
		case p.dead:
		case p.frozen > s.now:
			s.by(p, p.frozen-s.now+1+s.rng.Int64N(2000), do)
		default:
			do()
		}
	})
}

func (s *sim) write(p *simProcess, e record.Event) {
	e.At = s.now - p.offset
	p.Lines = append(p.Lines, e)
}

func (s *sim) start(name string, slots int) *simProcess {
	p := &simProcess{name: name, offset: s.now - 1}
	s.write(p, record.Event{
		Kind: record.Opened, Version: record.Version, Process: name, Queue: "q", Wall: p.offset + s.rng.Int64N(3000), Lease: simLease / 1000, Slots: slots,
	})
	s.all = append(s.all, p)
	return p
}

// simulate runs a whole life and returns its history and what is left.
func simulate(seed uint64, size simSize) (History, *Snapshot) {
	s := &sim{
		rng: rand.New(rand.NewPCG(seed, 1)), now: simStart, jobs: map[string]*simJob{}, held: map[*simJob]bool{},
		stats: map[string]int64{}, size: size, swept: simStart,
	}
	s.agent = s.start("harness", 0)
	for i := range size.workers {
		s.hire(i)
	}
	s.produce()
	s.sweep()
	s.clock()
	for i := range size.kills {
		s.after(int64(i+1)*300_000+s.rng.Int64N(100_000), s.kill)
	}
	for i := range size.outages {
		s.after(int64(i+1)*3_000_000, s.outage)
	}
	for i := range size.freezes {
		s.after(int64(i+1)*400_000+s.rng.Int64N(100_000), s.freeze)
	}
	for len(s.queue) > 0 {
		e := heap.Pop(&s.queue).(simEvent)
		if s.now = e.at; s.now > simStart+600_000_000 {
			panic(fmt.Sprintf("the simulation does not end: %d open, %d due, %d held, %d jobs, made %d", s.open, len(s.due), len(s.held), len(s.jobs), s.made))
		}
		e.do()
	}
	for _, p := range s.all {
		if !p.dead {
			s.write(p, record.Event{Kind: record.Closed})
		}
	}
	h := History{}
	for _, p := range s.all {
		h = append(h, p.Lines)
	}
	return h, s.snapshot()
}

// reach does something to the queue as soon as Redis can be reached.
func (s *sim) reach(do func()) {
	if s.down > s.now {
		s.after(s.down-s.now+s.rng.Int64N(20_000), func() { s.reach(do) })
		return
	}
	do()
}

// running says whether there is still something to be done.
func (s *sim) running() bool { return s.made < s.size.jobs || s.open > 0 }

func (s *sim) hire(i int) {
	p := s.start(fmt.Sprintf("worker-%d-%d", i, len(s.all)), s.size.slots)
	s.live = append(s.live, p)
	s.poll(p)
}

func (s *sim) clock() {
	before := s.now - s.agent.offset
	at := s.now + 150
	s.by(s.agent, 300, func() {
		if s.down > before+s.agent.offset {
			return
		}
		s.write(s.agent, record.Event{Kind: record.Clocked, Server: at, Until: s.now - s.agent.offset})
		s.agent.Lines[len(s.agent.Lines)-1].At = before
	})
	if s.running() {
		s.after(100_000, s.clock)
	}
}

// settled counts a job that is finished, or is not any more.
func (s *sim) finished(n int) { s.open -= n }

func (s *sim) produce() {
	for range 1 + s.rng.IntN(3) {
		if s.made < s.size.jobs {
			s.made++
			s.enqueue(fmt.Sprintf("job-%d", s.made))
		}
	}
	if s.made < s.size.jobs {
		s.after(s.rng.Int64N(1500), s.produce)
	}
}

func (s *sim) enqueue(id string) {
	s.calls++
	n, delay, odd := s.calls, int64(0), 100
	if s.rng.IntN(10) < 3 {
		delay = s.rng.Int64N(300) * 1000
	}
	if s.size.operators {
		odd = s.rng.IntN(100)
	}
	s.open++
	s.write(s.agent, record.Event{Kind: record.Called, Call: n, Op: record.OpEnqueue, ID: id, Delay: delay})
	answer := func(out string) {
		s.by(s.agent, 100+s.rng.Int64N(300), func() { s.write(s.agent, record.Event{Kind: record.Answered, Call: n, Out: out}) })
	}
	s.after(100+s.rng.Int64N(300), func() {
		if odd == 0 { // its request was lost
			s.finished(1)
			answer(record.OutUnknown)
			return
		}
		if s.down > s.now {
			odd = 1
		}
		s.reach(func() { s.put(id, delay) })
		switch odd {
		case 1:
			answer(record.OutUnknown)
		case 2:
			answer(record.OutUnknown)
			s.after(5000, func() { answer(record.OutOK) })
		case 3: // no answer at all
		default:
			answer(record.OutOK)
		}
	})
	if s.size.operators && s.rng.IntN(40) == 0 {
		s.after(s.rng.Int64N(50_000), func() { s.cancel(id) })
	}
}

func (s *sim) put(id string, delay int64) {
	j := &simJob{id: id, enqueued: s.now, place: "due", due: s.now / 1000}
	if delay > 0 {
		j.due = (s.now + delay + 999) / 1000
	}
	s.jobs[id] = j
	s.stats["enqueued"]++
	s.toDue(j, j.due)
}

func (s *sim) toDue(j *simJob, at int64) {
	j.place, j.due = "due", at
	i, _ := slices.BinarySearchFunc(s.due, j, compareSimJobs)
	s.due = slices.Insert(s.due, i, j)
}

func compareSimJobs(x, y *simJob) int {
	return cmp.Or(cmp.Compare(x.due, y.due), cmp.Compare(x.id, y.id))
}

func (s *sim) cancel(id string) {
	if s.down > s.now {
		return
	}
	s.calls++
	n, out := s.calls, record.OutOK
	s.write(s.agent, record.Event{Kind: record.Called, Call: n, Op: record.OpCancel, ID: id})
	switch j := s.jobs[id]; {
	case j == nil:
		out = record.OutRefused
	case j.place == "processing":
		j.cancelled = true
	case j.place == "due":
		s.due = slices.DeleteFunc(s.due, func(x *simJob) bool { return x == j })
		s.remove(j)
		s.stats["cancelled"]++
	case j.place == "dead":
		delete(s.jobs, id)
		s.stats["cancelled"]++
	}
	s.by(s.agent, 200, func() { s.write(s.agent, record.Event{Kind: record.Answered, Call: n, Out: out}) })
}

func (s *sim) remove(j *simJob) {
	delete(s.jobs, j.id)
	j.place = ""
	s.finished(1)
}

func (s *sim) die(j *simJob) {
	j.place, j.died = "dead", s.now/1000
	s.stats["died"]++
	s.finished(1)
	if s.size.operators && s.rng.IntN(2) == 0 {
		s.after(10_000+s.rng.Int64N(10_000), func() { s.redrive(j) })
	}
}

func (s *sim) redrive(j *simJob) {
	if s.jobs[j.id] != j || j.place != "dead" || !s.running() || s.down > s.now {
		return
	}
	s.calls++
	n := s.calls
	s.write(s.agent, record.Event{Kind: record.Called, Call: n, Op: record.OpRedrive, ID: j.id})
	j.failures, j.expiries, j.redrives = 0, 0, j.redrives+1
	s.open++
	s.toDue(j, s.now/1000)
	s.by(s.agent, 200, func() { s.write(s.agent, record.Event{Kind: record.Answered, Call: n, Out: record.OutOK}) })
}

func (s *sim) snapshot() *Snapshot {
	out := &Snapshot{
		Queue: "q", At: s.now, Due: map[string]int64{}, Processing: map[string]int64{}, Dead: map[string]int64{}, Done: map[string]int64{},
		Leases: map[string]string{}, Counts: map[string]string{}, Fence: s.fence, Stats: maps.Clone(s.stats),
	}
	for id, j := range s.jobs {
		out.Records = append(out.Records, id)
		switch j.place {
		case "due":
			out.Due[id] = j.due
		case "dead":
			out.Dead[id] = j.died
		case "processing":
			out.Processing[id], out.Leases[id] = j.expiry/1000, fmt.Sprintf("%d:s:1", j.fence)
		}
		if j.failures+j.expiries+j.redrives > 0 {
			out.Counts[id] = fmt.Sprintf("%d %d %d - - -", j.failures, j.expiries, j.redrives)
		}
	}
	slices.Sort(out.Records)
	return out
}
