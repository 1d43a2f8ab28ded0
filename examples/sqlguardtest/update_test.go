package sqlguardtest

import (
	"database/sql"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/idempotency/sqlguard"
)

func open(t *testing.T, id string) {
	t.Helper()
	_, err := db.Exec(`INSERT INTO accounts (id, tier) VALUES ($1, 'none')`, id)
	require.NoError(t, err)
}

const fencedUpdate = `UPDATE accounts SET tier = $1, last_fence = $2 WHERE id = $3 AND last_fence < $2`

func TestOneOfAHundredConditionalUpdatesChangesTheRow(t *testing.T) {
	t.Parallel()
	open(t, "conditional")
	var changed atomic.Int64
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			did, err := sqlguard.Changed(db.Exec(`UPDATE accounts SET tier = 'gold' WHERE id = 'conditional' AND tier = 'none'`))
			assert.NoError(t, err, "0 rows is success")
			if did {
				changed.Add(1)
			}
		})
	}
	all.Wait()
	require.EqualValues(t, 1, changed.Load())
}

func TestAnUpdateOfMoreThanOneRowIsToldAndCanBeRolledBack(t *testing.T) {
	t.Parallel()
	open(t, "many:1")
	open(t, "many:2")
	tx, err := db.Begin()
	require.NoError(t, err)
	_, err = sqlguard.Changed(tx.Exec(`UPDATE accounts SET tier = 'gold' WHERE id LIKE 'many:%'`))
	var rows *sqlguard.RowsError
	require.ErrorAs(t, err, &rows)
	require.EqualValues(t, 2, rows.Rows)
	require.NoError(t, tx.Rollback())
	tier, _ := account(t, "many:1")
	require.Equal(t, "none", tier)
}

func TestAZombieWithAnOldFenceChangesNothing(t *testing.T) {
	t.Parallel()
	open(t, "zombie")
	require.NoError(t, sqlguard.Fenced(db.Exec(fencedUpdate, "by 20", 20, "zombie")))
	for _, fence := range []int{19, 20} {
		require.ErrorIs(t, sqlguard.Fenced(db.Exec(fencedUpdate, "too late", fence, "zombie")), sqlguard.ErrStale)
	}
	tier, fence := account(t, "zombie")
	require.Equal(t, "by 20", tier)
	require.EqualValues(t, 20, fence)
}

func TestTheHighestOfAHundredFencesHasTheLastWord(t *testing.T) {
	t.Parallel()
	open(t, "race")
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			err := sqlguard.Fenced(db.Exec(fencedUpdate, fmt.Sprint(i+1), i+1, "race"))
			if err != nil {
				assert.ErrorIs(t, err, sqlguard.ErrStale)
			}
		})
	}
	all.Wait()
	tier, fence := account(t, "race")
	require.Equal(t, "100", tier)
	require.EqualValues(t, 100, fence)
}

// advanced writes an account's tier, which has no fence of its own here, under the fence of a resource.
func advanced(t *testing.T, id string, fence int64) error {
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := sqlguard.Advance(t.Context(), tx, "account:"+id, fence); err != nil {
		return err
	}
	if _, err := tx.Exec(`UPDATE accounts SET tier = $1 WHERE id = $2`, fmt.Sprint(fence), id); err != nil {
		return err
	}
	return tx.Commit()
}

func TestAdvanceOrdersAHundredTransactions(t *testing.T) {
	t.Parallel()
	open(t, "advance")
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			if err := advanced(t, "advance", int64(i+1)); err != nil {
				assert.ErrorIs(t, err, sqlguard.ErrStale)
			}
		})
	}
	all.Wait()
	tier, _ := account(t, "advance")
	require.Equal(t, "100", tier)
}

func TestAdvanceTellsAZombieWhoHasWritten(t *testing.T) {
	t.Parallel()
	open(t, "told")
	require.NoError(t, advanced(t, "told", 1<<50))
	for _, fence := range []int64{7, 1 << 50} {
		err := advanced(t, "told", fence)
		var stale *sqlguard.StaleError
		require.ErrorAs(t, err, &stale)
		require.Equal(t, sqlguard.StaleError{Resource: "account:told", Fence: fence, Last: 1 << 50}, *stale)
	}
	require.ErrorContains(t, advanced(t, "", 0), "the fence is 0")
}

func TestAFenceIsNotAdvancedByATransactionThatIsRolledBack(t *testing.T) {
	t.Parallel()
	tx, err := db.BeginTx(t.Context(), &sql.TxOptions{})
	require.NoError(t, err)
	require.NoError(t, sqlguard.Advance(t.Context(), tx, "rolled back", 9))
	require.NoError(t, tx.Rollback())
	tx, err = db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	require.NoError(t, sqlguard.Advance(t.Context(), tx, "rolled back", 8))
}
