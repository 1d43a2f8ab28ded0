package sqlguardtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/idempotency/sqlguard"
)

func TestOneOfAHundredAtOnceIsFirst(t *testing.T) {
	t.Parallel()
	var winners, effects atomic.Int64
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			first, err := sqlguard.Once(t.Context(), db, "coupon:hundred", func(tx *sql.Tx) error {
				effects.Add(1)
				return grant("hundred")(tx)
			})
			assert.NoError(t, err)
			if first {
				winners.Add(1)
			}
		})
	}
	all.Wait()
	require.EqualValues(t, 1, winners.Load())
	require.EqualValues(t, 1, effects.Load())
	requireCoupons(t, "hundred", 1)
}

func TestAnEffectThatFailsLeavesItsKeyFree(t *testing.T) {
	t.Parallel()
	broken := errors.New("no stock")
	first, err := sqlguard.Once(t.Context(), db, "coupon:failing", func(tx *sql.Tx) error {
		return errors.Join(grant("failing")(tx), broken)
	})
	require.ErrorIs(t, err, broken)
	require.False(t, first)
	requireCoupons(t, "failing", 0)
	first, err = sqlguard.Once(t.Context(), db, "coupon:failing", grant("failing"))
	require.NoError(t, err)
	require.True(t, first)
	first, err = sqlguard.Once(t.Context(), db, "coupon:failing", grant("failing"))
	require.NoError(t, err)
	require.False(t, first)
	requireCoupons(t, "failing", 1)
}

// Whoever waits for a holder that is killed before its commit is first.
func TestAHolderWhoseConnectionDiesLeavesTheKeyToTheNext(t *testing.T) {
	t.Parallel()
	tx, err := db.Begin()
	require.NoError(t, err)
	first, err := sqlguard.First(t.Context(), tx, "coupon:dying")
	require.NoError(t, err)
	require.True(t, first)
	require.NoError(t, grant("dying")(tx))
	var pid int
	require.NoError(t, tx.QueryRow(`SELECT pg_backend_pid()`).Scan(&pid))

	next := make(chan error, 1)
	go func() {
		first, err := sqlguard.Once(context.Background(), db, "coupon:dying", grant("dying"))
		if err == nil && !first {
			err = errors.New("it was not first")
		}
		next <- err
	}()
	requireWaiting(t, pid)
	_, err = db.Exec(`SELECT pg_terminate_backend($1)`, pid)
	require.NoError(t, err)
	require.NoError(t, <-next)
	require.Error(t, tx.Commit())
	requireCoupons(t, "dying", 1)
}

// requireWaiting waits until somebody waits for a lock of that backend.
func requireWaiting(t *testing.T, pid int) {
	t.Helper()
	require.Eventually(t, func() bool {
		var waits bool
		err := db.QueryRow(`SELECT EXISTS (SELECT FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid)))`, pid).Scan(&waits)
		return err == nil && waits
	}, 20*time.Second, 5*time.Millisecond)
}

func TestWaitingForAKeyEndsWithTheContext(t *testing.T) {
	t.Parallel()
	tx, err := db.Begin()
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	_, err = sqlguard.First(t.Context(), tx, "coupon:held")
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	first, err := sqlguard.Once(ctx, db, "coupon:held", grant("held"))
	require.Error(t, err)
	require.False(t, first)
}

func TestUnderSerializableTheOneWhoWaitedFailsAndMayBeginAnew(t *testing.T) {
	t.Parallel()
	begin := func() *sql.Tx {
		tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelSerializable})
		require.NoError(t, err)
		require.NoError(t, tx.QueryRow(`SELECT 1`).Scan(new(int))) // takes its snapshot
		return tx
	}
	holder, waiter := begin(), begin()
	_, err := sqlguard.First(t.Context(), holder, "coupon:serial")
	require.NoError(t, err)
	require.NoError(t, holder.Commit())
	_, err = sqlguard.First(t.Context(), waiter, "coupon:serial")
	require.True(t, sqlguard.Retryable(err), "%v", err)
	require.NoError(t, waiter.Rollback())
	first, err := sqlguard.Once(t.Context(), db, "coupon:serial", grant("serial"))
	require.NoError(t, err)
	require.False(t, first)
}

// Two effects take each other's rows in opposite orders. PostgreSQL ends one of them, which begins anew.
func TestADeadlockIsBegunAnewAndBothEffectsHappenOnce(t *testing.T) {
	t.Parallel()
	_, err := db.Exec(`INSERT INTO accounts (id, tier) VALUES ('left', 'none'), ('right', 'none')`)
	require.NoError(t, err)
	var met, calls atomic.Int64
	both := make(chan struct{})
	take := func(key, one, other string) error {
		_, err := sqlguard.Once(t.Context(), db, key, func(tx *sql.Tx) error {
			calls.Add(1)
			if _, err := tx.Exec(`UPDATE accounts SET tier = $1 WHERE id = $2`, key, one); err != nil {
				return err
			}
			if met.Add(1) == 2 {
				close(both)
			}
			<-both
			if _, err := tx.Exec(`UPDATE accounts SET tier = $1 WHERE id = $2`, key, other); err != nil {
				return fmt.Errorf("the second row: %w", err)
			}
			return grant(key)(tx)
		})
		return err
	}
	var pair sync.WaitGroup
	pair.Go(func() { assert.NoError(t, take("deadlock:1", "left", "right")) })
	pair.Go(func() { assert.NoError(t, take("deadlock:2", "right", "left")) })
	pair.Wait()
	require.EqualValues(t, 3, calls.Load(), "one of them ran twice")
	requireCoupons(t, "deadlock:1", 1)
	requireCoupons(t, "deadlock:2", 1)
}

func TestForgottenKeysCanBeTakenAgainAndYoungOnesStay(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"old:1", "old:2", "young"} {
		_, err := sqlguard.Once(t.Context(), db, key, grant(key))
		require.NoError(t, err)
	}
	_, err := db.Exec(`UPDATE leaseq_effects SET done_at = now() - interval '40 days' WHERE key LIKE 'old:%'`)
	require.NoError(t, err)
	for _, want := range []int64{1, 1, 0} {
		n, err := sqlguard.Forget(t.Context(), db, 30*24*time.Hour, 1)
		require.NoError(t, err)
		require.Equal(t, want, n)
	}
	for key, want := range map[string]bool{"old:1": true, "old:2": true, "young": false} {
		first, err := sqlguard.Once(t.Context(), db, key, grant(key))
		require.NoError(t, err)
		require.Equal(t, want, first, key)
	}
}

func TestKeysOfTheWrongLengthAreRefused(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"", strings.Repeat("k", sqlguard.MaxKey+1)} {
		_, err := sqlguard.Once(t.Context(), db, key, grant("nobody"))
		require.ErrorContains(t, err, "the key has")
	}
	first, err := sqlguard.Once(t.Context(), db, strings.Repeat("k", sqlguard.MaxKey), grant("longest"))
	require.NoError(t, err)
	require.True(t, first)
}
