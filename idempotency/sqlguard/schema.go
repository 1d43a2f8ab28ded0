package sqlguard

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// Schema makes the tables of this package where they are missing. Run it as a migration: two processes that run it at the
// same moment on an empty database can get an error, and it needs the right to create tables.
//
// leaseq_effects has a row per key that was taken, leaseq_fences a row per resource that was written with a fence.
const Schema = `
CREATE TABLE IF NOT EXISTS leaseq_effects (
	key     text        PRIMARY KEY,
	done_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX IF NOT EXISTS leaseq_effects_done_at ON leaseq_effects (done_at);
CREATE TABLE IF NOT EXISTS leaseq_fences (
	resource   text   PRIMARY KEY,
	last_fence bigint NOT NULL
);`

// Execer is what *sql.DB, *sql.Conn and *sql.Tx have in common here.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// MaxForget is the most keys that one call of [Forget] deletes.
const MaxForget = 10_000

// Forget deletes up to limit keys (1 to [MaxForget]) that were taken more than age ago by the database's clock, oldest
// first, and returns how many; fewer than limit means that no more were that old. A key that is forgotten can be taken
// again, so keep keys for longer than a job of theirs can come again: its retries, its time in dead and a redrive
// included. Keys that another Forget is deleting are passed over. After an error nothing was deleted, unless the reply was
// lost.
func Forget(ctx context.Context, db Execer, age time.Duration, limit int) (int64, error) {
	if age <= 0 || limit < 1 || limit > MaxForget {
		return 0, fmt.Errorf("sqlguard.Forget: age is %v and limit %d: want more than 0, and 1 to %d", age, limit, MaxForget)
	}
	result, err := db.ExecContext(ctx, forgetKeys, age.Seconds(), limit)
	if err != nil {
		return 0, fmt.Errorf("sqlguard.Forget: %w", err)
	}
	return result.RowsAffected()
}

const forgetKeys = `
DELETE FROM leaseq_effects WHERE key IN (
	SELECT key FROM leaseq_effects
	WHERE done_at < now() - make_interval(secs => $1::double precision)
	ORDER BY done_at LIMIT $2 FOR UPDATE SKIP LOCKED)`
