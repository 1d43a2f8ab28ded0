package sqlguard

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// A RowsError says that an update that was to change one row at most changed more: its WHERE lacks something. Inside a
// transaction, roll it back; outside of one it has happened.
type RowsError struct{ Rows int64 }

func (e *RowsError) Error() string {
	return fmt.Sprintf("the update changed %d rows: want 1 at most", e.Rows)
}

// Changed reads the result of a conditional update of one row, and is written around it:
//
//	closed, err := sqlguard.Changed(tx.ExecContext(ctx,
//		`UPDATE orders SET status = 'CLOSED' WHERE id = $1 AND status = 'WAIT_PAY'`, id))
//
// False says that the condition did not hold: the order was paid, or an earlier start of this job has closed it. That is
// success, and the handler returns nil. More than one row is a [*RowsError].
func Changed(result sql.Result, err error) (bool, error) {
	if err != nil {
		return false, err
	}
	rows, err := result.RowsAffected()
	if err != nil {
		return false, err
	}
	if rows > 1 {
		return true, &RowsError{Rows: rows}
	}
	return rows == 1, nil
}

// ErrStale says that the row has been written with this fence or a newer one: a later holder has the job, or this holder
// has written already. Nothing was changed.
var ErrStale = errors.New("a newer fence has written, or the same one: nothing was changed")

// Fenced reads the result of a fenced update of one row, and is written around it:
//
//	err := sqlguard.Fenced(tx.ExecContext(ctx,
//		`UPDATE accounts SET tier = $1, last_fence = $2 WHERE id = $3 AND last_fence < $2`, tier, job.Fence(), id))
//
// No row is [ErrStale]; a row that is not there at all looks the same. Make last_fence a bigint NOT NULL DEFAULT 0: NULL is
// less than nothing. More than one row is a [*RowsError].
func Fenced(result sql.Result, err error) error {
	changed, err := Changed(result, err)
	if err == nil && !changed {
		return ErrStale
	}
	return err
}

// A StaleError is [ErrStale] of [Advance]. Last is the fence that has written: where it equals Fence this holder did so
// itself, as in a try whose COMMIT had no reply.
type StaleError struct {
	Resource    string
	Fence, Last int64
}

func (e *StaleError) Error() string {
	return fmt.Sprintf("%s was written with fence %d, and this is %d: nothing was changed", e.Resource, e.Last, e.Fence)
}

// Is says that it is ErrStale.
func (e *StaleError) Is(target error) bool { return target == ErrStale }

// Advance fences a transaction of several statements, or rows that have no column for a fence: it raises the resource's
// last fence, and what follows in tx is committed with it or not at all. A fence that is not greater than the last is a
// [*StaleError], and nothing was changed: roll back. Until tx ends other holders that advance the same resource wait.
//
// fence is the job's (job.Fence of package reliable), more than 0; a start of a job has one, so each start
// advances a resource once. resource is 1 to [MaxKey] bytes, as "account:7".
func Advance(ctx context.Context, tx *sql.Tx, resource string, fence int64) error {
	err := checkKey("resource", resource)
	if fence <= 0 {
		err = errors.Join(err, fmt.Errorf("the fence is %d: want more than 0", fence))
	}
	if err != nil {
		return fmt.Errorf("sqlguard.Advance: %w", err)
	}
	moved, err := Changed(tx.ExecContext(ctx, advance, resource, fence))
	if err != nil {
		return fmt.Errorf("sqlguard.Advance(%q): %w", resource, err)
	}
	if moved {
		return nil
	}
	stale := &StaleError{Resource: resource, Fence: fence}
	row := tx.QueryRowContext(ctx, `SELECT last_fence FROM leaseq_fences WHERE resource = $1`, resource)
	if err := row.Scan(&stale.Last); err != nil {
		return fmt.Errorf("sqlguard.Advance(%q): %w", resource, errors.Join(ErrStale, err))
	}
	return stale
}

const advance = `
INSERT INTO leaseq_fences AS f (resource, last_fence) VALUES ($1, $2)
ON CONFLICT (resource) DO UPDATE SET last_fence = EXCLUDED.last_fence WHERE f.last_fence < EXCLUDED.last_fence`
