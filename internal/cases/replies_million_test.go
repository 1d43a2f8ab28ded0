package cases

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/lease"
)

// A mill is one run: movers on one queue, and one more on a queue on which every lease runs out once.
type mill struct {
	target        int64
	until         time.Time
	failed        atomic.Bool
	moved, lapsed *ledger
}

func (q *mill) ops() int64 { return q.moved.ops.Load() + q.lapsed.ops.Load() }

func (q *mill) enough() bool {
	return q.ops() >= q.target || q.failed.Load() || time.Now().After(q.until)
}

// move goes on until there were enough operations, and then until nothing is left.
func (q *mill) move(m *mover) error {
	for !q.enough() {
		if err := m.round(true); err != nil {
			return err
		}
	}
	for idle := 0; idle < 2; {
		if err := m.round(false); err != nil {
			return err
		}
		if idle++; len(m.hand) > 0 {
			idle = 0
		}
	}
	return nil
}

// lapse has every job's lease run out once: jobs are made, claimed, extended, swept when they have run out, claimed
// again with one expiry, and acked.
func (q *mill) lapse(m *mover, truth *lease.Store) error {
	const batch = 60
	for !q.enough() {
		items := make([]lease.Item, batch)
		for i := range items {
			id := fmt.Sprint(m.name, m.made)
			m.made++
			items[i] = lease.Item{ID: id, Record: []byte(recordOf(id))}
			m.begin(id, fateAck)
		}
		if err := m.enqueue(items); err != nil {
			return err
		}
		if err := m.claimAll(batch, nil); err != nil {
			return err
		}
		if err := m.runOut(truth); err != nil {
			return err
		}
		if err := m.claimAll(batch, &lease.ClaimOptions{Lease: time.Hour}); err != nil {
			return err
		}
		if err := m.exchange(); err != nil {
			return err
		}
		if len(m.hand) > 0 {
			return fmt.Errorf("%s was handed over once more", m.hand[0].ID)
		}
	}
	return nil
}

// claimAll claims until it holds n jobs: after a lost reply a claim asks for fewer.
func (m *mover) claimAll(n int, o *lease.ClaimOptions) error {
	for len(m.hand) < n {
		got, err := m.store.Claim(background(), n-len(m.hand), o)
		if err != nil {
			return fmt.Errorf("claim: %w", err)
		}
		if len(got.Jobs) == 0 {
			return fmt.Errorf("%d of %d jobs cannot be claimed", n-len(m.hand), n)
		}
		if err := m.take(got.Jobs); err != nil {
			return err
		}
	}
	return nil
}

// runOut sweeps until every lease that is held has ended. A sweep whose reply was lost is called again, so what they say
// that they moved is not the whole.
func (m *mover) runOut(truth *lease.Store) error {
	m.mu.Lock()
	for _, one := range m.hand {
		job := m.jobs[one.ID]
		job.held, job.expiries = false, job.expiries+1
	}
	m.mu.Unlock()
	for {
		_, err := m.store.Expire(background(), lease.DefaultBatch, true)
		stats, lookErr := truth.Stats(background())
		if lookErr != nil {
			return lookErr
		}
		if err == nil && stats.Processing == 0 {
			m.count("expired", len(m.hand))
			m.hand = nil
			return nil
		}
		<-time.After(min(max(stats.NextExpiry, 0), 50*time.Millisecond))
	}
}

const movers = 6

// run lets them all work, each with a store and sessions of its own, and returns when nothing is left to be done.
func (q *mill) run(t *testing.T, seed uint64, rdb *redis.Client, moving, lapsing *lane) {
	t.Helper()
	_, err := lapsing.store.Publish(t.Context(), &lease.Policy{Lease: 40 * time.Millisecond})
	require.NoError(t, err)
	worker := func(i int, l *ledger, queue string) *mover {
		return &mover{ledger: l, store: newStore(t, rdb, queue), random: rand.New(rand.NewPCG(seed, uint64(i+1))), name: fmt.Sprintf("m%d-", i)}
	}
	ended := make(chan error, movers+1)
	for i := range movers {
		m := worker(i, q.moved, moving.name)
		go func() { ended <- q.move(m) }()
	}
	m := worker(movers, q.lapsed, lapsing.name)
	go func() { ended <- q.lapse(m, lapsing.store) }()
	for range movers + 1 {
		if one := <-ended; one != nil {
			q.failed.Store(true) // the others end too
			err = errors.Join(err, one)
		}
	}
	require.NoError(t, err)
}

// Operations of every kind, in small batches by several workers at once, while the replies of one to five commands in a
// hundred are dropped after they have run. Each answer must be what the operation has to answer, each job's counters what
// its calls have made of them, and each counter of the queue exact: no lease is held by nobody, none is told lost that is
// not, and nothing counts twice. With go-redis' own repeats on; and so again with a client that repeats whatever had no
// answer, also what says that it may not be. The full number is 1,000,000 for each.
func TestRepliesDropped_AMillionOperationsAreExact(t *testing.T) {
	t.Parallel()
	for _, repeater := range repeaters {
		t.Run(repeater.Name, func(t *testing.T) {
			t.Parallel()
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			moving, lapsing := newLane(t, nil), newLane(t, nil)
			net := newShareNet(t, seed)
			rdb := net.client(t, func(o *redis.Options) { o.MaxRetries = 3 })
			repeater.Hook(rdb)
			began := time.Now()
			q := &mill{target: shape[int64](10_000, 1_000_000), until: began.Add(5 * time.Minute), moved: newLedger(), lapsed: newLedger()}
			q.run(t, seed, rdb, moving, lapsing)
			took := time.Since(began)
			net.Decide(nil)

			assert.GreaterOrEqual(t, q.ops(), q.target, "operations within the time there is")
			unseen := q.moved.check(t, moving.stats())
			unseenLapsed := q.lapsed.check(t, lapsing.stats())
			drops := net.summary()
			for _, name := range []string{"enqueue", "claim", "settle", "extend", "expire", "cancel", "purge", "redrive"} {
				assert.GreaterOrEqual(t, drops[name], shape(0, 20), "drops of %s", name)
			}
			assert.NotZero(t, net.Dropped(), "replies that were dropped")
			if share := float64(net.Dropped()) / float64(net.Commands()); full() { // few draws can lie outside
				assert.True(t, leastShare <= share && share <= mostShare, "a share of %v", share)
			}
			t.Logf("%d operations in %v: %v, and on leases that run out %v", q.ops(), took.Round(time.Millisecond), q.moved.answers(), q.lapsed.answers())
			t.Logf("%d of %d replies dropped, %.1f to %.1f in a hundred: %v", net.Dropped(), net.Commands(), 100*net.rare, 100*net.most, drops)
			t.Logf("%d leases that nobody saw went back by themselves", unseen+unseenLapsed)
		})
	}
}
