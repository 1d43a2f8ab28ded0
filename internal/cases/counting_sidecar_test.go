package cases

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/lease"
	"github.com/leaseq/leaseq/reaper"
)

// A sidecar process with default options, which says a line for each call that ended leases: how many, whether there
// are more, and when, in µs.
var _ = child("counting-sidecar", func(config []byte) int {
	var at serverAt
	if err := json.Unmarshal(config, &at); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	rdb := at.client(0)
	defer rdb.Close()
	r, err := reaper.New(rdb, &reaper.Options{OnSweep: func(_ string, e lease.Expired) {
		if e.Moved() > 0 {
			fmt.Println("swept", e.Moved(), e.More, time.Now().UnixMicro())
		}
	}})
	if err == nil {
		err = r.Run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
})

// swept is one line of a counting sidecar.
type swept struct {
	moved int
	more  bool
	at    int64
}

func readSwept(t testing.TB, line string) swept {
	t.Helper()
	var s swept
	_, err := fmt.Sscanf(line, "swept %d %t %d", &s.moved, &s.more, &s.at)
	require.NoError(t, err, line)
	return s
}
