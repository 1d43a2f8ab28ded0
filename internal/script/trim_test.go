package script

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/redistest"
)

// serverNow is the server's clock.
func (d *desk) serverNow(t *testing.T) time.Time {
	t.Helper()
	now, err := d.direct.Time(t.Context()).Result()
	require.NoError(t, err)
	return now
}

func TestTrimForgetsUnusedSessionsWithTheirHoldersAndNoOthers(t *testing.T) {
	t.Parallel()
	d := plainDesk(t)
	ctx := t.Context()
	calls := []*Call{count("x"), grab(3)}
	require.NoError(t, d.Do(ctx, calls...))
	now := d.serverNow(t).UnixMilli()
	const unused = time.Hour
	records := map[string]string{
		"old":       fmt.Sprintf("7 %d ooo", now-unused.Milliseconds()-1),
		"old claim": fmt.Sprintf("7 %d 1700000000000000 5 1700000000000", now-2*unused.Milliseconds()),
		"ancient":   "1 5 ", "newer form": fmt.Sprintf("1 %d a rest of another version", now-unused.Milliseconds()-1),
		"unreadable": "what is this", "empty": "",
		"used": fmt.Sprintf("7 %d ooo", now-unused.Milliseconds()+patience.Milliseconds()), "fresh": fmt.Sprintf("7 %d", now),
	}
	for session, record := range records {
		require.NoError(t, d.direct.HSet(ctx, d.key("sessions"), session, record).Err())
		require.NoError(t, d.direct.HSet(ctx, d.key("holders"), session, "somebody").Err())
	}
	next, removed, err := d.Trim(ctx, "0", unused)
	require.NoError(t, err)
	assert.Equal(t, "0", next)
	assert.EqualValues(t, 6, removed)
	want := []string{calls[0].Session, calls[1].Session, "used", "fresh"}
	assert.ElementsMatch(t, want, d.direct.HKeys(ctx, d.key("sessions")).Val())
	assert.ElementsMatch(t, want, d.direct.HKeys(ctx, d.key("holders")).Val())

	next, removed, err = d.Trim(ctx, "0", unused)
	require.NoError(t, err)
	assert.Equal(t, "0", next)
	assert.Zero(t, removed)
}

func TestTrimGoesThroughManySessionsInSmallSteps(t *testing.T) {
	t.Parallel()
	redistest.NeedServer(t) // miniredis answers a scan whole
	d := plainDesk(t)
	ctx := t.Context()
	const old, fresh = 2000, 300
	fields := make([]any, 0, 2*(old+fresh))
	now := d.serverNow(t).UnixMilli()
	for i := range old + fresh {
		when := int64(1000)
		if i >= old {
			when = now
		}
		fields = append(fields, fmt.Sprintf("s-%d", i), fmt.Sprintf("1 %d a", when))
	}
	require.NoError(t, d.direct.HSet(ctx, d.key("sessions"), fields...).Err())
	total, steps := int64(0), 0
	for cursor := "0"; ; {
		next, removed, err := d.Trim(ctx, cursor, time.Minute)
		require.NoError(t, err)
		assert.LessOrEqual(t, removed, int64(300), "a step is about a hundred")
		total += removed
		steps++
		if cursor = next; cursor == "0" {
			break
		}
	}
	assert.EqualValues(t, old, total)
	assert.Greater(t, steps, 5)
	assert.EqualValues(t, fresh, d.direct.HLen(ctx, d.key("sessions")).Val())
}

func TestACallRenewsItsSession(t *testing.T) {
	t.Parallel()
	d := plainDesk(t)
	ctx := t.Context()
	for _, make := range []func() *Call{func() *Call { return count("x") }, func() *Call { return grab(2) }} {
		c := make()
		require.NoError(t, d.Do(ctx, c))
		record := fmt.Sprintf("%d 1000 ", c.Number)
		require.NoError(t, d.direct.HSet(ctx, d.key("sessions"), c.Session, record).Err())
		c = make()
		require.NoError(t, d.Do(ctx, c))
		_, removed, err := d.Trim(ctx, "0", time.Minute)
		require.NoError(t, err)
		assert.Zero(t, removed)
	}
}

func TestTrimmedSessionOfALivingProcessCostsNothing(t *testing.T) {
	t.Parallel()
	d := plainDesk(t)
	ctx := t.Context()
	require.NoError(t, d.Do(ctx, count("x"), grab(1)))
	require.Eventually(t, func() bool {
		_, _, err := d.Trim(ctx, "0", 0)
		return err == nil && d.direct.HLen(ctx, d.key("sessions")).Val() == 0
	}, patience, pollEvery)
	assert.Zero(t, d.direct.HLen(ctx, d.key("holders")).Val())
	calls := []*Call{count("x"), grab(1)}
	require.NoError(t, d.Do(ctx, calls...))
	require.NoError(t, calls[0].Err)
	require.NoError(t, calls[1].Err)
	assert.Equal(t, "2", calls[0].Rest)
	assert.Equal(t, 2, d.stat(t, "grabbed"))
	assert.Zero(t, d.stat(t, "taken_back"))
}

func TestOpenGivesUniqueGrowingNamesAndKeepsTheHolder(t *testing.T) {
	t.Parallel()
	d := plainDesk(t)
	ctx := t.Context()
	before := d.serverNow(t).UnixMicro()
	last := ""
	for range 50 {
		req := d.openRequest()
		d.runner.Send(ctx, req)
		require.NoError(t, req.Err)
		require.Len(t, req.Reply, 2)
		name := req.Reply[1].(string)
		assert.Greater(t, name, last)
		assert.Regexp(t, `^[0-9]{16}-[0-9a-f]{32}$`, name, "the fence in full, and 128 random bits")
		assert.Equal(t, "test/1", d.direct.HGet(ctx, d.key("holders"), name).Val())
		last = name
	}
	var fence int64
	_, err := fmt.Sscanf(last, "%d-", &fence)
	require.NoError(t, err)
	assert.GreaterOrEqual(t, fence, before)
	assert.Equal(t, fmt.Sprint(fence), d.direct.Get(ctx, d.key("fence")).Val())

	const ahead = int64(9_007_199_254_740_000) // near the end of what Lua counts exactly
	require.NoError(t, d.direct.Set(ctx, d.key("fence"), ahead, 0).Err())
	req := d.openRequest()
	d.runner.Send(ctx, req)
	require.NoError(t, req.Err)
	assert.Contains(t, req.Reply[1], fmt.Sprint(ahead+1), "advanced by one where the clock is behind")
}
