package main

import (
	"context"
	"errors"
	"fmt"
)

// claims are what must hold in the end, each as the SQL that counts what breaks it.
var claims = []struct{ what, sql string }{
	{"an order still waits", `SELECT count(*) FROM orders WHERE status = 'WAIT_PAY'`},
	{"an unpaid order was not closed exactly once", `
		SELECT count(*) FROM orders o WHERE status <> 'PAID'
		AND 1 <> (SELECT count(*) FROM order_log l WHERE l.order_id = o.id AND l.was = 'WAIT_PAY' AND l.became = 'CLOSED')`},
	{"a paid order was touched by more than its payment", `
		SELECT count(*) FROM orders o WHERE status = 'PAID'
		AND (1 <> (SELECT count(*) FROM order_log l WHERE l.order_id = o.id) OR last_fence <> 0
			OR NOT EXISTS (SELECT FROM order_log l WHERE l.order_id = o.id AND l.was = 'WAIT_PAY' AND l.became = 'PAID'))`},
	{"a closed order was changed again", `
		SELECT count(*) FROM orders o WHERE status = 'CLOSED' AND 1 <> (SELECT count(*) FROM order_log l WHERE l.order_id = o.id)`},
	{"an order was closed before its time", `
		SELECT count(*) FROM orders o JOIN order_log l ON l.order_id = o.id
		WHERE l.became = 'CLOSED' AND l.at < o.due_at - interval '100 milliseconds'`},
	{"a product's stock does not fit its paid orders", `
		SELECT count(*) FROM stock s
		WHERE s.free <> -(SELECT count(*) FROM orders o WHERE o.product = s.product AND o.status = 'PAID')`},
}

// prove asks the database for every claim, and returns an error for each that is broken.
func prove(ctx context.Context, shop Shop) error {
	var errs []error
	for _, claim := range claims {
		var broken int
		if err := shop.db.QueryRowContext(ctx, claim.sql).Scan(&broken); err != nil {
			return fmt.Errorf("%s: %w", claim.what, err)
		}
		if broken > 0 {
			errs = append(errs, fmt.Errorf("%s: %d times", claim.what, broken))
		}
	}
	return errors.Join(errs...)
}

// count counts the orders of a status.
func (s Shop) count(ctx context.Context, status string) (n int, err error) {
	err = s.db.QueryRowContext(ctx, `SELECT count(*) FROM orders WHERE status = $1`, status).Scan(&n)
	return n, err
}
