//go:build unix

package cases

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/reliable"
)

// The handler works for ten leases, whoever runs it.
var _ = crashHandler("s02", func(w *crashWorker) reliable.Handler {
	return reliable.HandlerFunc(func(ctx context.Context, job *reliable.Job) error {
		w.mark("start", job, digest(job.Payload))
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(10 * w.Lease):
			return nil
		}
	})
})

// digest tells payloads apart.
func digest(payload []byte) string {
	sum := sha256.Sum256(payload)
	return hex.EncodeToString(sum[:])
}

// everyByte is a payload that no text format survives.
func everyByte() []byte {
	var b strings.Builder
	for i := range 256 {
		b.WriteByte(byte(i))
	}
	return []byte(b.String())
}

// A worker is killed with SIGKILL 300 ms into a job that it works on for ten leases. A fresh worker gets the job when
// the stored lease is over: not before, and not later than sweepers may take.
func TestS02_KilledWorkersJobIsRedeliveredAfterItsLeaseExpiry(t *testing.T) {
	t.Parallel()
	s := newCrashSite(t, crashConfig{
		Handler: "s02", Lease: shape(time.Second, 2*time.Second), MaxRetries: 2, MaxExpiries: 2,
	})
	s.sidecar(t)
	victim := s.worker(t, nil)
	// The process of the next worker is there already, but waits: what is measured is a redelivery, not a fork.
	next := s.worker(t, func(c *crashConfig) { c.Gate = s.key("gate") })

	payload := everyByte()
	s.enqueue(reliable.Item{ID: "J", Kind: "s02", Payload: payload})
	first := s.awaitMarks(t, "start", 1)[0]
	<-time.After(300 * time.Millisecond)
	graces := s.count(t, "graces")
	before := s.expiry(t, "J")
	victim.Kill()
	expiry := s.expiry(t, "J") // a last heartbeat may have been on its way
	require.GreaterOrEqual(t, expiry, before)
	require.NoError(t, s.beside.RPush(t.Context(), s.key("gate"), "go").Err())

	starts := s.awaitMarks(t, "start", 2)
	second := starts[1]
	late := time.UnixMicro(second.Clock).Sub(time.UnixMilli(expiry))
	assert.GreaterOrEqual(t, late, time.Duration(0), "the second start is before the end of the first lease")
	if s.count(t, "graces") == graces {
		assert.LessOrEqual(t, late, sweepBound+reclaimBound, "the second start is late")
	} else { // this machine has kept the sweeper from sweeping for half a lease: one lease more, from the end of that gap
		end := time.UnixMilli(s.graceEnd(t))
		assert.LessOrEqual(t, time.UnixMicro(second.Clock).Sub(end), sweepBound+reclaimBound, "the second start is late after a grace")
	}
	t.Logf("second start %v after the stored expiry", late)

	assert.Equal(t, 1, first.Attempt)
	assert.Equal(t, 2, second.Attempt, "the delivery number that the second handler saw")
	assert.Equal(t, next.Process.Pid, second.PID)
	assert.Greater(t, second.Fence, first.Fence)
	info := s.inspect("J")
	assert.Equal(t, reliable.Processing, info.Place)
	assert.Equal(t, [2]int{0, 1}, [2]int{info.Failures, info.Expiries}, "failures and expiries stored")
	for _, start := range starts {
		assert.Equal(t, digest(payload), start.Note, "the payload of start %d", start.Attempt)
	}

	s.awaitCount(t, "acked", 1)
	next.finish(t)
	assert.Len(t, marksOf(readMarks(t, s.Marks), "start"), 2)
	assert.EqualValues(t, 1, s.count(t, "acked"))
	assert.EqualValues(t, 1, s.count(t, "expired"))
	assert.Equal(t, reliable.Nowhere, s.inspect("J").Place)
}
