package sqlguard_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/idempotency/sqlguard"
)

// These need no database. What the statements do is tested on a real PostgreSQL, in examples/sqlguardtest.

func TestZeroRowsOfAConditionalUpdateAreSuccess(t *testing.T) {
	t.Parallel()
	changed, err := sqlguard.Changed(driver.RowsAffected(0), nil)
	require.NoError(t, err)
	require.False(t, changed)
	changed, err = sqlguard.Changed(driver.RowsAffected(1), nil)
	require.NoError(t, err)
	require.True(t, changed)
}

func TestMoreThanOneRowIsAMistake(t *testing.T) {
	t.Parallel()
	_, err := sqlguard.Changed(driver.RowsAffected(3), nil)
	var rows *sqlguard.RowsError
	require.ErrorAs(t, err, &rows)
	require.EqualValues(t, 3, rows.Rows)
	require.ErrorAs(t, sqlguard.Fenced(driver.RowsAffected(2), nil), &rows)
}

func TestZeroRowsOfAFencedUpdateAreStale(t *testing.T) {
	t.Parallel()
	require.ErrorIs(t, sqlguard.Fenced(driver.RowsAffected(0), nil), sqlguard.ErrStale)
	require.NoError(t, sqlguard.Fenced(driver.RowsAffected(1), nil))
	require.ErrorIs(t, &sqlguard.StaleError{}, sqlguard.ErrStale)
}

func TestTheDatabasesErrorComesThrough(t *testing.T) {
	t.Parallel()
	var none sql.Result // what ExecContext returns with an error
	_, err := sqlguard.Changed(none, sql.ErrConnDone)
	require.ErrorIs(t, err, sql.ErrConnDone)
	require.ErrorIs(t, sqlguard.Fenced(none, sql.ErrConnDone), sql.ErrConnDone)
	_, err = sqlguard.Changed(driver.ResultNoRows, nil)
	require.Error(t, err, "a driver that counts no rows")
}

// state is an error as drivers of PostgreSQL have it.
type state string

func (s state) Error() string    { return "SQLSTATE " + string(s) }
func (s state) SQLState() string { return string(s) }

func TestSerializationFailuresAndDeadlocksCanBeBegunAnew(t *testing.T) {
	t.Parallel()
	require.True(t, sqlguard.Retryable(fmt.Errorf("close: %w", state("40001"))))
	require.True(t, sqlguard.Retryable(errors.Join(errors.New("close"), state("40P01"))))
	require.False(t, sqlguard.Retryable(state("23505")))
	require.False(t, sqlguard.Retryable(context.Canceled))
	require.False(t, sqlguard.Retryable(nil))
}

type refusing struct{ t *testing.T }

func (r refusing) ExecContext(context.Context, string, ...any) (sql.Result, error) {
	r.t.Error("nothing is to be sent")
	return nil, nil
}

func TestForgetRefusesBoundsBeforeItSendsAnything(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{0, sqlguard.MaxForget + 1} {
		_, err := sqlguard.Forget(t.Context(), refusing{t}, time.Hour, limit)
		require.ErrorContains(t, err, "want more than 0")
	}
	_, err := sqlguard.Forget(t.Context(), refusing{t}, 0, 1)
	require.Error(t, err)
}
