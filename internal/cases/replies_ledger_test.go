package cases

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/leaseq/leaseq/internal/netfault"
	"github.com/leaseq/leaseq/lease"
)

// A shareNet drops the replies of one to five commands in a hundred, whatever they are. The share changes every now and
// then.
type shareNet struct {
	*detour
	mu         sync.Mutex
	random     *rand.Rand
	share      float64
	rare, most float64 // shares that there were
	asked      int
	dropped    map[string]int // by script
}

const (
	leastShare = 0.01
	mostShare  = 0.05
	shareFor   = 500 // commands
)

func newShareNet(t *testing.T, seed uint64) *shareNet {
	t.Helper()
	n := &shareNet{detour: newDetour(t), random: rand.New(rand.NewPCG(seed, 0)), rare: 1, dropped: map[string]int{}}
	n.Decide(n.decide)
	return n
}

func (n *shareNet) decide(cmd []string) netfault.Action {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.asked%shareFor == 0 {
		n.share = leastShare + (mostShare-leastShare)*n.random.Float64()
		n.rare, n.most = min(n.rare, n.share), max(n.most, n.share)
	}
	n.asked++
	if n.random.Float64() >= n.share {
		return netfault.Pass
	}
	name := "(other commands)"
	if call, isOurs := scriptIn(cmd); isOurs {
		name = call.Name
	}
	n.dropped[name]++
	return netfault.DropReply
}

// summary tells the drops by script.
func (n *shareNet) summary() map[string]int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.dropped)
}

// A fate is what is going to happen to a job, decided when it is made.
type fate int

const (
	fateAck        fate = iota // acked at its first start
	fateNack                   // nacked once, then acked
	fateRelease                // released once, then acked
	fateBury                   // buried once, redriven, then acked
	fateLate                   // acked, and then once more, which must be refused
	fateCancelHeld             // cancelled while it is held, and then settled in any way but an ack
	fateCancelAck              // cancelled while it is held, and then acked
	fateCancelDue              // due much later: enqueued once more, which must be refused, and cancelled
	fatePurgeDue               // due much later: enqueued once more, which must be refused, and purged
)

// fates are how many of 20 jobs have which fate.
var fates = func() []fate {
	var all []fate
	for f, n := range map[fate]int{
		fateAck: 6, fateNack: 3, fateRelease: 2, fateBury: 3, fateLate: 1, fateCancelHeld: 1, fateCancelAck: 1, fateCancelDue: 2, fatePurgeDue: 1,
	} {
		for range n {
			all = append(all, f)
		}
	}
	return all
}()

// A ledger is what a queue must hold, and must have counted, by those who work on it. It is written before a call is
// sent, since whoever gets the job next may have it before the sender is told; an answer that does not fit what was
// written is an error.
type ledger struct {
	mu   sync.Mutex
	jobs map[string]*ledgerJob
	told map[string]int // operations on one job each that were answered, by what they were
	ops  atomic.Int64   // the sum of those
}

type ledgerJob struct {
	fate                         fate
	held, released               bool
	failures, expiries, redrives int
}

func newLedger() *ledger { return &ledger{jobs: map[string]*ledgerJob{}, told: map[string]int{}} }

// count notes n answers.
func (l *ledger) count(what string, n int) {
	l.mu.Lock()
	l.told[what] += n
	l.mu.Unlock()
	l.ops.Add(int64(n))
}

func (l *ledger) answers() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.told)
}

// begin notes a job that is going to be made.
func (l *ledger) begin(id string, f fate) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.jobs[id] = &ledgerJob{fate: f}
}

// end notes jobs that are going to be removed.
func (l *ledger) end(ids ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		delete(l.jobs, id)
	}
}

// redriven notes jobs that are going to be redriven.
func (l *ledger) redriven(ids ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		job := l.jobs[id]
		job.failures, job.expiries, job.redrives = 0, 0, job.redrives+1
	}
}

// take notes a job that was handed over. Nobody may hold it, and its counters must be what its calls have made of them.
func (l *ledger) take(got *lease.Lease) (fate, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	job := l.jobs[got.ID]
	switch {
	case job == nil:
		return 0, fmt.Errorf("%s was handed over, and must not exist", got.ID)
	case job.held:
		return 0, fmt.Errorf("%s was handed over twice", got.ID)
	case job.fate == fateCancelDue || job.fate == fatePurgeDue:
		return 0, fmt.Errorf("%s was handed over an hour early", got.ID)
	case got.Failures != job.failures || got.Expiries != job.expiries || got.Redrives != job.redrives:
		return 0, fmt.Errorf("%s has %d failures, %d expiries, %d redrives: want %d, %d, %d", got.ID,
			got.Failures, got.Expiries, got.Redrives, job.failures, job.expiries, job.redrives)
	case string(got.Record) != recordOf(got.ID):
		return 0, fmt.Errorf("%s has the record %q", got.ID, got.Record)
	}
	job.held = true
	return job.fate, nil
}

func recordOf(id string) string { return "record of " + id }

func (l *ledger) fateOf(id string) fate {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.jobs[id].fate
}

// verdict decides how a held job is settled, once it was cancelled by op, and what must be answered, and notes that.
func (l *ledger) verdict(got *lease.Lease, op lease.Op) (lease.Verdict, lease.Settled) {
	l.mu.Lock()
	defer l.mu.Unlock()
	job, v, want := l.jobs[got.ID], lease.Verdict{Op: lease.Ack, ID: got.ID, Token: got.Token}, lease.Settled{}
	switch {
	case job.fate == fateNack && job.failures == 0:
		v.Op, want.Place = lease.Nack, lease.Due
		job.failures++
	case job.fate == fateRelease && !job.released:
		v.Op, want.Place = lease.Release, lease.Due
		v.KeepDue(got)
		job.released = true
	case job.fate == fateBury && job.redrives == 0:
		v.Op, want.Place = lease.Bury, lease.Dead
		job.failures++
	case job.fate == fateCancelHeld:
		v.Op, want.Cancelled = op, true
	}
	job.held = false
	if want.Place == lease.Nowhere {
		delete(l.jobs, got.ID)
	}
	return v, want
}

// check holds what the queue has counted against the ledger: nothing is left, and each counter is exact. It returns how
// many leases were given back that nobody had seen: they are counted as claimed and as released, and in no other way.
func (l *ledger) check(t *testing.T, stats lease.Stats) (unseen int64) {
	t.Helper()
	told := l.answers()
	for name, want := range map[string]int{
		"enqueued": told["enqueued"], "acked": told["acked"], "nacked": told["nacked"], "buried": told["buried"],
		"died": told["buried"], "redriven": told["redriven"], "expired": told["expired"], "purged": told["purged"],
		"cancelled": told["cancelled"] + told["settled as cancelled"], "cancelled_processing": told["settled as cancelled"],
		"refused": told["late acks refused"], "refused_extends": 0, "missing": 0,
	} {
		assert.EqualValues(t, want, stats.Counters[name], name)
	}
	unseen = stats.Counters["claimed"] - int64(told["claimed"])
	assert.Equal(t, unseen, stats.Counters["released"]-int64(told["released"]), "leases that nobody saw")
	assert.GreaterOrEqual(t, unseen, int64(0), "leases that nobody saw")
	assert.Zero(t, stats.Processing, "leases that nobody holds")
	assert.Zero(t, stats.Due+stats.Dead+stats.Done+stats.Records, "jobs that are left")
	assert.Empty(t, l.jobs, "jobs that were made and never came to their end")
	return unseen
}
