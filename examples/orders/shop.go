package main

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/leaseq/leaseq/idempotency/sqlguard"
)

// tables of a shop. order_log is written by a trigger, so that it knows of every change of a status, whoever made it.
const tables = `
CREATE TABLE stock (
	product bigint PRIMARY KEY,
	free    bigint NOT NULL
);
CREATE TABLE orders (
	id         bigint      PRIMARY KEY,
	product    bigint      NOT NULL REFERENCES stock,
	status     text        NOT NULL DEFAULT 'WAIT_PAY' CHECK (status IN ('WAIT_PAY', 'PAID', 'CLOSED')),
	due_at     timestamptz NOT NULL,
	last_fence bigint      NOT NULL DEFAULT 0
);
CREATE INDEX orders_overdue ON orders (id) WHERE status = 'WAIT_PAY';
CREATE TABLE order_log (
	order_id bigint      NOT NULL,
	was      text        NOT NULL,
	became   text        NOT NULL,
	at       timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE FUNCTION log_order() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO order_log (order_id, was, became) VALUES (OLD.id, OLD.status, NEW.status);
	RETURN NULL;
END $$;
CREATE TRIGGER orders_logged AFTER UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION log_order();`

// A Shop is the business: what is true of an order is what its database says.
type Shop struct{ db *sql.DB }

// Create makes an order that holds one piece of a product, and is to be paid by due from now.
func (s Shop) Create(ctx context.Context, id, product int64, due time.Duration) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	if _, err := tx.ExecContext(ctx, `INSERT INTO orders (id, product, due_at) VALUES ($1, $2, now() + make_interval(secs => $3))`, id, product, due.Seconds()); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `UPDATE stock SET free = free - 1 WHERE product = $1`, product); err != nil {
		return err
	}
	return tx.Commit()
}

// Pay pays an order, and reports whether it was still waiting for that.
func (s Shop) Pay(ctx context.Context, id int64) (bool, error) {
	return sqlguard.Changed(s.db.ExecContext(ctx, `UPDATE orders SET status = 'PAID' WHERE id = $1 AND status = 'WAIT_PAY'`, id))
}

// Close closes an order that still waits for its payment, and gives its piece back to the stock, both or neither. It
// reports whether it did: false, without an error, where the order was paid or closed before. However often it runs, and
// whoever runs it, the order is closed once.
//
// The condition on the status is all that this takes. The fence shows how a write is refused that a newer holder of the
// job has overtaken.
func (s Shop) Close(ctx context.Context, id, fence int64, work time.Duration) (bool, error) {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer func() { _ = tx.Rollback() }()
	closed, err := sqlguard.Changed(tx.ExecContext(ctx, `
		UPDATE orders SET status = 'CLOSED', last_fence = $2
		WHERE id = $1 AND status = 'WAIT_PAY' AND last_fence < $2`, id, fence))
	if err != nil || !closed {
		return false, err
	}
	if _, err := tx.ExecContext(ctx, `UPDATE stock SET free = free + 1 WHERE product = (SELECT product FROM orders WHERE id = $1)`, id); err != nil {
		return false, err
	}
	if err := pause(ctx, work); err != nil {
		return false, err
	}
	if err := tx.Commit(); err != nil {
		return false, fmt.Errorf("it may be closed, and the next start will see: %w", err)
	}
	return true, nil
}

// Overdue returns up to n orders behind the ID after that still wait for their payment, more than grace past their time.
func (s Shop) Overdue(ctx context.Context, after int64, grace time.Duration, n int) (ids []int64, err error) {
	rows, err := s.db.QueryContext(ctx, `
		SELECT id FROM orders WHERE status = 'WAIT_PAY' AND id > $1 AND due_at < now() - make_interval(secs => $2)
		ORDER BY id LIMIT $3`, after, grace.Seconds(), n)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}

// pause stands for work that takes time.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
