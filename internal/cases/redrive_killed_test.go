package cases

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/reliable"
)

// The tool redrives very many dead jobs and is killed again and again. At every moment each job is in one place, and
// running it again ends the work. No call keeps the server for long.
func TestARedriveThatIsKilledAgainAndAgainIsFinishedByRunningItOnceMore(t *testing.T) {
	t.Parallel()
	n, kills := shape(8_000, 100_000), shape(5, 20)
	tool := filepath.Join(t.TempDir(), "reaper")
	out, err := exec.Command("go", "build", "-o", tool, "../../cmd/reaper").CombinedOutput()
	require.NoError(t, err, string(out))
	server := redistest.Server(t, nil)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	l := laneOn(t, "killed", rdb, nil)
	l.dead(n)
	proxy := redistest.Proxy(t, server.Addr()) // so that the tool does not end before it is killed
	proxy.Delay(time.Duration(shape(2, 1)) * time.Millisecond)
	slow := keepSlowScripts(t, server, rdb, 10*time.Millisecond)

	ctx, stop := context.WithCancel(t.Context())
	watched := make(chan error, 1)
	go func() { watched <- l.watch(ctx, int64(n)) }()
	run := func(more ...string) (*exec.Cmd, *strings.Builder) {
		cmd, said := exec.Command(tool, append([]string{"redrive", "killed", "--all", "--redis", "redis://" + proxy.Addr()}, more...)...), &strings.Builder{}
		cmd.Stdout, cmd.Stderr = said, said
		require.NoError(t, cmd.Start())
		t.Cleanup(func() { _ = cmd.Process.Kill() }) // one that has ended is left alone
		return cmd, said
	}
	for kill := range kills {
		var filter []string
		if kill%2 == 1 {
			filter = []string{"--class", "discarded", "--kind", "case"} // page by page, and then by ID
		}
		cmd, said := run(filter...)
		target := int64((kill + 1) * n / (kills + 2))
		require.Eventually(t, func() bool { return l.stats().Due >= target }, time.Minute, 5*time.Millisecond)
		require.NoError(t, cmd.Process.Kill())
		require.Error(t, cmd.Wait(), "it ended before it was killed: %s", said)
		redistest.CheckQueue(t, rdb, keys.DefaultPrefix, "killed")
	}
	left := l.stats().Dead
	require.Positive(t, left)
	cmd, said := run()
	require.NoError(t, cmd.Wait(), said)
	require.Equal(t, fmt.Sprintf("%d jobs redriven\n", left), said.String())
	stop()
	require.NoError(t, <-watched)
	slow.check(t)
	stats := l.stats()
	require.Equal(t, []int64{int64(n), 0, int64(n), int64(n)}, []int64{stats.Due, stats.Dead, stats.Records, stats.Counters["redriven"]})
	for _, id := range []string{"dead0", fmt.Sprint("dead", n/2), fmt.Sprint("dead", n-1)} {
		info := l.inspect(id)
		require.Equal(t, []any{1, 0, id}, []any{info.Redrives, info.Failures, string(info.Payload)})
	}
	redistest.CheckQueue(t, rdb, keys.DefaultPrefix, "killed")
}

// dead makes n dead jobs.
func (l *lane) dead(n int) {
	l.t.Helper()
	jobs := make([]reliable.Info, n)
	died := l.serverTime().Add(-time.Hour)
	for i := range jobs {
		id := fmt.Sprint("dead", i)
		jobs[i] = reliable.Info{
			ID: id, Place: reliable.Dead, At: died, Kind: "case", Payload: []byte(id), EnqueuedAt: died, Failures: 1,
			Errors: []reliable.Failure{{At: died, Attempt: 1, Holder: "worker/1", Reason: "no use", Class: reliable.Discarded}},
		}
	}
	results, err := l.queue.Import(l.t.Context(), jobs)
	require.NoError(l.t, err)
	for _, err := range results {
		require.NoError(l.t, err)
	}
}

// watch looks at all places in one step, every 2 ms, which is less than a call of the tool takes behind its proxy: each of
// n jobs is in exactly one.
func (l *lane) watch(ctx context.Context, n int64) error {
	for looks := 0; ; looks++ {
		<-time.After(2 * time.Millisecond)
		if ctx.Err() != nil {
			if looks < 10 {
				return fmt.Errorf("only %d looks", looks)
			}
			return nil
		}
		var due, dead, records *redis.IntCmd
		_, err := l.rdb.TxPipelined(context.Background(), func(pipe redis.Pipeliner) error {
			due, dead = pipe.ZCard(context.Background(), l.keys.Key("due")), pipe.ZCard(context.Background(), l.keys.Key("dead"))
			records = pipe.HLen(context.Background(), l.keys.Key("jobs"))
			return nil
		})
		if err != nil {
			return err
		}
		if due.Val()+dead.Val() != n || records.Val() != n {
			return fmt.Errorf("%d due and %d dead with %d records: want %d in all", due.Val(), dead.Val(), records.Val(), n)
		}
	}
}
