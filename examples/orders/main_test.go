package main

import (
	"context"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// TestMain is also the worker process that the example starts out of its own program.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "-worker" {
		main()
		os.Exit(0) // a worker that failed has ended with 1
	}
	goleak.VerifyTestMain(m)
}

func TestUnpaidOrdersAreClosedOnceWhileWorkersAreKilledAndRedisForgets(t *testing.T) {
	s, err := parse(nil)
	require.NoError(t, err)
	require.NoError(t, show(t.Context(), s))
}

func TestFlagsThatCannotBeAreRefused(t *testing.T) {
	for _, args := range [][]string{{"-orders", "9"}, {"-workers", "0"}, {"-due", "0s"}, {"-worker"}, {"more"}} {
		_, err := parse(args)
		require.Error(t, err, "%v", args)
	}
}

// Each claim of the proof notices what it is there for.
func TestTheProofNoticesWhatIsWrong(t *testing.T) {
	ctx := t.Context()
	s, err := parse(nil)
	require.NoError(t, err)
	stop, err := startServers(ctx, &s)
	require.NoError(t, err)
	defer func() { require.NoError(t, stop()) }()
	st, err := newStage(ctx, s)
	require.NoError(t, err)
	defer func() { require.NoError(t, st.close(context.WithoutCancel(ctx))) }()
	for id := range int64(3) {
		require.NoError(t, st.shop.Create(ctx, id, 1, 0))
	}
	require.ErrorContains(t, prove(ctx, st.shop), "still waits: 3 times")
	paid, err := st.shop.Pay(ctx, 0)
	require.NoError(t, err)
	require.True(t, paid)
	for id := range int64(3) {
		closed, err := st.shop.Close(ctx, id, 5, 0)
		require.NoError(t, err)
		require.Equal(t, id > 0, closed, "the paid one is not closed")
		closed, err = st.shop.Close(ctx, id, 6, 0)
		require.NoError(t, err)
		require.False(t, closed)
	}
	require.NoError(t, prove(ctx, st.shop))
	for what, harm := range map[string]string{
		"closed exactly once":       `UPDATE orders SET status = 'WAIT_PAY' WHERE id = 1; UPDATE orders SET status = 'CLOSED' WHERE id = 1`,
		"touched by more":           `UPDATE orders SET last_fence = 7 WHERE id = 0`,
		"changed again":             `UPDATE orders SET last_fence = 9 WHERE id = 2`,
		"before its time":           `UPDATE orders SET due_at = due_at + interval '1 hour' WHERE id = 2`,
		"does not fit its paid":     `UPDATE stock SET free = free + 1 WHERE product = 1`,
		"an order still waits: 1 t": `UPDATE orders SET status = 'WAIT_PAY' WHERE id = 2`,
	} {
		_, err := st.shop.db.ExecContext(ctx, harm)
		require.NoError(t, err)
		require.ErrorContains(t, prove(ctx, st.shop), what)
	}
}
