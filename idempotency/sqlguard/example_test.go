package sqlguard_test

import (
	"context"
	"database/sql"
	"errors"

	"github.com/leaseq/leaseq/idempotency/sqlguard"
)

var (
	ctx   = context.Background()
	db    *sql.DB // of your driver
	id    = int64(10086)
	fence int64 // job.Fence() in a handler
)

// An order is closed while it waits for its payment. Paid or closed before is success too.
func ExampleChanged() {
	closed, err := sqlguard.Changed(db.ExecContext(ctx,
		`UPDATE orders SET status = 'CLOSED' WHERE id = $1 AND status = 'WAIT_PAY'`, id))
	if err != nil {
		return // from a handler: return err, and the job comes again
	}
	_ = closed // false: there was nothing to do
}

// A coupon is granted once, however often the job runs.
func ExampleOnce() {
	_, err := sqlguard.Once(ctx, db, "coupon:10086", func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO coupons (user_id, cents) VALUES ($1, 500)`, id)
		return err
	})
	_ = err // nil: the coupon is there, granted now or before
}

// In a transaction of one's own.
func ExampleFirst() {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return
	}
	defer func() { _ = tx.Rollback() }()
	first, err := sqlguard.First(ctx, tx, "coupon:10086")
	if err != nil || !first {
		return // nil: it was done before
	}
	if _, err = tx.ExecContext(ctx, `INSERT INTO coupons (user_id, cents) VALUES ($1, 500)`, id); err != nil {
		return
	}
	_ = tx.Commit()
}

// A holder that was frozen, and whose job somebody else has done since, overwrites nothing.
func ExampleFenced() {
	err := sqlguard.Fenced(db.ExecContext(ctx,
		`UPDATE accounts SET tier = 'gold', last_fence = $1 WHERE id = $2 AND last_fence < $1`, fence, id))
	if errors.Is(err, sqlguard.ErrStale) {
		return // a newer holder has written, or this start has
	}
}
