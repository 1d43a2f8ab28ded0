package demo

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/leaseq/leaseq/reliable"
)

// evidence is all that a ledger is computed from: what the workers wrote, and what Redis said.
type evidence struct {
	enqueued []string        // the IDs
	lines    []line          // the workers' file
	stats    reliable.Stats  // at the end
	jobs     []reliable.Info // at the end, one for each ID enqueued
	dead     []reliable.Info // at the end, the list of dead letters
	broken   []*interrupted  // with the expiries that were read from Redis while they were held
	signals  []int           // process IDs of the workers that were sent SIGKILL
	froze    bool            // one was frozen and thawed
}

// A ledger is what became of the jobs.
type ledger struct {
	Jobs, Acked, Dead, Deliveries, Kills, Expired, Refused int

	Cuts        []cut           // deliveries that a kill or a freeze interrupted
	P50, Max    time.Duration   // from a stored expiry to the next claim of the job
	Effects     effects         // the side effects
	Letters     []letter        // the dead
	Lost        []string        // IDs that are acked by nobody, and nowhere
	Problems    []string        // why the ledger does not balance
	Graces      int             // how often late sweeps spared the holders, the first sweep included
	Retries     int             // deliveries after a failure or an expiry
	Lines       int             // in the workers' file
	Server      string          // its kind
	Version     string          // of the server; "" if unknown
	Frozen      bool            // a worker was frozen
	Took        time.Duration   // the whole demonstration
	victims     map[int]string  // workers that ended without a word, by process ID
	interrupted map[int]int     // deliveries that each of those was in the middle of
	unwritten   map[string]bool // IDs that are acked, by the last call of a worker that was killed
}

// A cut is one delivery that was interrupted, and what followed.
type cut struct {
	ID, Worker, How, By string
	Retries             int           // failures + expiries that Redis told with the next delivery
	After               time.Duration // from the stored expiry to its claim
	Again               bool          // there was one
	End                 string        // what became of the job
}

// A letter is a dead letter.
type letter struct {
	ID, Reason string
	Attempts   int // failures + expiries
}

// settleBooks reads what is there at the end and computes the ledger.
func (s *stage) settleBooks(ctx context.Context) (*ledger, error) {
	e := evidence{enqueued: s.enqueued, broken: s.broken, signals: s.crew.killedPIDs(), froze: s.froze}
	var err error
	if e.lines, err = readLines(s.file); err != nil {
		return nil, err
	}
	if e.stats, err = s.queue.Stats(ctx); err != nil {
		return nil, err
	}
	if e.jobs, err = s.queue.Inspect(ctx, e.enqueued...); err != nil {
		return nil, err
	}
	dead, err := s.queue.List(ctx, reliable.Dead, len(e.enqueued), nil)
	if err != nil {
		return nil, err
	}
	e.dead = dead.Jobs
	book := compute(&e)
	book.Server, book.Version, book.Took = s.server.kind, s.server.version, time.Since(s.began)
	return book, nil
}

// A delivery is one start of a job by a worker, put together from its lines.
type delivery struct {
	start   line
	doubt   *line // the answer that the side effect is in doubt
	effects []line
	finish  *line
}

// compute makes the ledger. It believes nobody: what does not fit together is a problem.
func compute(e *evidence) *ledger {
	a := newAccounts(e)
	b := &ledger{
		Jobs: len(e.enqueued), Deliveries: len(a.byFence), Kills: len(a.silent), Lines: len(e.lines), Frozen: e.froze,
		Expired: a.counter("expired"), Refused: a.counter("refused"), Graces: a.counter("graces"),
		Dead: len(e.dead), victims: a.silent, interrupted: map[int]int{}, unwritten: map[string]bool{}, Problems: a.problems,
	}
	for _, d := range a.byFence {
		if d.start.Attempt > 1 {
			b.Retries++
		}
	}
	b.account(e, a)
	b.countEffects(e, a)
	b.cuts(e, a)
	b.letters(e)
	b.checkBooks(e, a)
	b.checkPlay(e, a)
	b.checkDoubts(e, a)
	return b
}

// account decides for each ID whether it is acked, in a place, or lost. A worker can be killed after Redis took its ack
// and before it wrote that down. Such a job is nowhere, had its effect, was last started by a worker that ended without a
// word, and Redis has counted one ack more than there are lines: all of it must be true.
func (b *ledger) account(e *evidence, a *accounts) {
	unwritten := a.counter("acked") - len(a.acked)
	for i, id := range e.enqueued {
		_, acked := a.acked[id]
		here := e.jobs[i].Place
		switch {
		case acked && here != reliable.Nowhere:
			b.wrong("%s was acked, and is in %s", id, here)
		case acked && len(a.effects(id)) == 0:
			b.wrong("%s was acked, and its side effect never happened", id)
		case acked:
			b.Acked++
		case here != reliable.Nowhere:
		case unwritten > 0 && a.diedAfterEffect(id):
			unwritten--
			b.unwritten[id] = true
			b.Acked++
		default:
			b.Lost = append(b.Lost, id)
		}
	}
	if unwritten != 0 {
		b.wrong("Redis counted %d acks, and the workers' lines account for %d", a.counter("acked"), a.counter("acked")-unwritten)
	}
	if len(b.Lost) > 0 {
		b.wrong("lost: %v", b.Lost)
	}
}

// cuts follows the interrupted deliveries to the next claim of the job.
func (b *ledger) cuts(e *evidence, a *accounts) {
	var times []time.Duration
	for _, broken := range e.broken {
		next := a.next(broken.ID, broken.Fence)
		if b.settledAfterAll(broken, next, a) {
			continue
		}
		c := cut{ID: broken.ID, Worker: broken.Worker, How: broken.how, End: a.fate(broken.ID, e)}
		if next == nil {
			b.wrong("%s was interrupted, and never started again", c.ID)
			b.Cuts = append(b.Cuts, c)
			continue
		}
		c.Again, c.By, c.Retries = true, next.start.Worker, next.start.Failures+next.start.Expiries
		c.After = recovery(broken.expiry, next.start.Fence)
		times = append(times, c.After)
		if c.After < 0 {
			b.wrong("%s was claimed %v before the lease of %s had run out", c.ID, -c.After, c.Worker)
		}
		if next.start.Expiries <= broken.Expiries {
			b.wrong("%s was put back without its retry count growing", c.ID)
		}
		b.Cuts = append(b.Cuts, c)
	}
	slices.Sort(times)
	if n := len(times); n > 0 {
		b.P50, b.Max = times[(n+1)/2-1], times[n-1] // nearest rank
	}
}

// settledAfterAll says whether the verdict of an interrupted delivery was on its way when its worker was stopped, and
// Redis took it after it had been asked: so it was not interrupted.
func (b *ledger) settledAfterAll(broken *interrupted, next *delivery, a *accounts) bool {
	if d := a.byFence[broken.Fence]; d != nil && d.finish != nil && d.finish.Outcome.accepted() {
		return true
	}
	if next == nil {
		return b.unwritten[broken.ID]
	}
	return next.start.Expiries == broken.Expiries && next.start.Failures > broken.Failures
}

func (b *ledger) letters(e *evidence) {
	for i := range e.dead {
		info := &e.dead[i]
		l := letter{ID: info.ID, Attempts: info.Failures + info.Expiries}
		if n := len(info.Errors); n > 0 {
			l.Reason = info.Errors[n-1].Reason
		}
		if l.Reason == "" {
			b.wrong("%s is dead, and nobody says why", l.ID)
		}
		b.Letters = append(b.Letters, l)
	}
	slices.SortFunc(b.Letters, func(x, y letter) int { return cmp.Compare(x.ID, y.ID) })
}

func (b *ledger) wrong(format string, args ...any) {
	b.Problems = append(b.Problems, fmt.Sprintf(format, args...))
}

// verdict is nil if the ledger balances. listed says that nobody has read the problems yet.
func (b *ledger) verdict(unread bool) error {
	switch {
	case len(b.Problems) == 0:
		return nil
	case unread:
		return fmt.Errorf("the ledger does not balance: %q", b.Problems)
	}
	return fmt.Errorf("the ledger does not balance, in %d points", len(b.Problems))
}
