package sqlguard

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// MaxKey is how long a key may be, in bytes.
const MaxKey = 512

// MaxTries is how often [Once] begins a transaction at most.
const MaxTries = 5

// First takes a key in the caller's transaction. True: nobody has taken it, and it is taken when tx commits; do the effect
// in the same transaction. False: the effect of this key is committed; do nothing and go on. It takes a *sql.Tx because
// outside of a transaction a crash behind it would lose the effect for ever.
//
// While another transaction has the key and has not ended, First waits for it, until ctx ends. After an error the
// transaction is of no use any more: roll it back.
//
// The key says which effect it is: what the job is about and what is done, as "coupon:10086". Two jobs of one key share
// the effect. Keys are 1 to [MaxKey] bytes of valid UTF-8 without a zero byte (PostgreSQL refuses others).
func First(ctx context.Context, tx *sql.Tx, key string) (bool, error) {
	if err := checkKey("key", key); err != nil {
		return false, fmt.Errorf("sqlguard.First: %w", err)
	}
	result, err := tx.ExecContext(ctx, `INSERT INTO leaseq_effects (key) VALUES ($1) ON CONFLICT (key) DO NOTHING`, key)
	first, err := Changed(result, err)
	if err != nil {
		return false, fmt.Errorf("sqlguard.First(%q): %w", key, err)
	}
	return first, nil
}

// Once does an effect exactly once: it begins a transaction, takes the key, calls effect if it was first, and commits.
// first is false where the effect had been committed before; effect was not called then, and that is no error.
//
// After an error of effect all is rolled back, the key too, and that error is returned. Serialization failures and
// deadlocks ([Retryable]), those of effect included, begin anew, up to [MaxTries] times with a short random wait: effect
// must do nothing but work on tx. After any other error nothing was committed, except that the reply of COMMIT itself may
// have been lost; call again with the same key, and it tells.
func Once(ctx context.Context, db *sql.DB, key string, effect func(tx *sql.Tx) error) (first bool, err error) {
	for try := 1; ; try++ {
		first, err = onceTry(ctx, db, key, effect)
		if err == nil || try == MaxTries || !Retryable(err) {
			return first, err
		}
		wait := time.NewTimer(rand.N(10 * time.Millisecond << try))
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return false, errors.Join(ctx.Err(), err)
		}
	}
}

func onceTry(ctx context.Context, db *sql.DB, key string, effect func(tx *sql.Tx) error) (first bool, err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return false, fmt.Errorf("sqlguard.Once(%q): begin: %w", key, err)
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	if first, err = First(ctx, tx, key); err != nil || !first {
		return false, err
	}
	if err = effect(tx); err != nil {
		return false, err
	}
	if err = tx.Commit(); err != nil {
		return false, fmt.Errorf("sqlguard.Once(%q): commit: %w", key, err)
	}
	return true, nil
}

// Retryable reports whether err is a serialization failure (40001) or a deadlock (40P01): the transaction was rolled back
// and may succeed when it is begun anew. It asks the driver's error for its SQLState, as pgx and lib/pq have it.
func Retryable(err error) bool {
	var state interface{ SQLState() string }
	if !errors.As(err, &state) {
		return false
	}
	code := state.SQLState()
	return code == "40001" || code == "40P01"
}

func checkKey(what, key string) error {
	if key == "" || len(key) > MaxKey {
		return fmt.Errorf("the %s has %d bytes: want 1 to %d", what, len(key), MaxKey)
	}
	return nil
}
