package sqlguardtest

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/leaseq/leaseq/examples/internal/postgres"
	"github.com/leaseq/leaseq/idempotency/sqlguard"
)

// db is one PostgreSQL for all tests; each uses keys and rows of its own.
var db *sql.DB

func TestMain(m *testing.M) {
	server, err := postgres.Start(context.Background())
	if err == nil {
		db, err = prepared(server.DSN())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = db.Close()
	if err := server.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func prepared(dsn string) (*sql.DB, error) {
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(120)
	_, err = db.Exec(sqlguard.Schema + `
		CREATE TABLE coupons (owner text NOT NULL, tries bigserial);
		CREATE TABLE accounts (id text PRIMARY KEY, tier text NOT NULL, last_fence bigint NOT NULL DEFAULT 0);`)
	return db, err
}

func grant(owner string) func(tx *sql.Tx) error {
	return func(tx *sql.Tx) error {
		_, err := tx.Exec(`INSERT INTO coupons (owner) VALUES ($1)`, owner)
		return err
	}
}

func requireCoupons(t *testing.T, owner string, n int) {
	t.Helper()
	var found int
	require.NoError(t, db.QueryRow(`SELECT count(*) FROM coupons WHERE owner = $1`, owner).Scan(&found))
	require.Equal(t, n, found)
}

func account(t *testing.T, id string) (tier string, fence int64) {
	t.Helper()
	require.NoError(t, db.QueryRow(`SELECT tier, last_fence FROM accounts WHERE id = $1`, id).Scan(&tier, &fence))
	return tier, fence
}
