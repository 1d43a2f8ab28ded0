package durability

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/chaos/record"
	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/internal/redisproc"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/reliable"
)

// appendOnlyFile is the file that a server appends to; it was named otherwise before Redis 7.
func appendOnlyFile(t testing.TB, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "appendonlydir", "*.incr.aof"))
	require.NoError(t, err)
	if len(files) == 0 {
		return filepath.Join(dir, "appendonly.aof")
	}
	require.Len(t, files, 1)
	return files[0]
}

func sizeOf(t testing.TB, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	require.NoError(t, err)
	return info.Size()
}

// A deed is one script, and what the queue held before and after it.
type deed struct {
	name          string
	from, to      int64 // where it stands in the append-only file
	before, after map[string]string
}

// deeds runs scripts of every kind on a server of its own, kills it, and returns them with the server's directory.
func deeds(t *testing.T) (dir string, all []*deed) {
	t.Helper()
	dir = memoryDir(t)
	server := redistest.Server(t, &redisproc.Options{AppendOnly: true, AppendFsync: "always", Dir: dir, Args: noRewrites})
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	q, err := reliable.New(rdb, queueName, &reliable.QueueOptions{Lease: time.Minute})
	require.NoError(t, err)
	defer func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // the server is gone
		_ = q.Close(ctx)
	}()
	items := func(prefix string) (items []reliable.Item) {
		for n := range 4 {
			items = append(items, reliable.Item{Kind: "order", ID: fmt.Sprint(prefix, n), Payload: []byte("payload")})
		}
		return items
	}
	var jobs []*reliable.Job
	claim := func(n int) {
		batch, err := q.Claim(t.Context(), n, nil)
		require.NoError(t, err)
		require.Len(t, batch.Jobs, n)
		jobs = append(jobs, batch.Jobs...)
	}
	enqueue := func(prefix string) {
		results, err := q.EnqueueMany(t.Context(), items(prefix))
		require.NoError(t, err)
		for _, one := range results {
			require.NoError(t, one.Err)
		}
	}
	enqueue("first") // which opens the sessions, and publishes the policy
	claim(1)
	require.NoError(t, jobs[0].Ack(t.Context()))
	file := appendOnlyFile(t, dir)
	for _, step := range []struct {
		name string
		do   func()
	}{
		{"enqueue", func() { enqueue("second") }},
		{"claim", func() { claim(4) }},
		{"ack", func() { require.NoError(t, jobs[1].Ack(t.Context())) }},
		{"nack", func() { require.NoError(t, jobs[2].Nack(t.Context(), errors.New("no"))) }},
		{"bury", func() { require.NoError(t, jobs[3].Bury(t.Context(), errors.New("never"))) }},
		{"cancel", func() { _, err := q.Cancel(t.Context(), "second2"); require.NoError(t, err) }},
	} {
		d := &deed{name: step.name, from: sizeOf(t, file), before: redistest.Dump(t, rdb, keys.DefaultPrefix, queueName)}
		step.do()
		d.to, d.after = sizeOf(t, file), redistest.Dump(t, rdb, keys.DefaultPrefix, queueName)
		require.NotEqual(t, d.before, d.after)
		all = append(all, d)
	}
	require.NoError(t, server.Kill())
	return dir, all
}

// The end of the append-only file is torn, at any byte of what a script has changed. At the next start that script has
// not run, none of it; nothing else is missing. Written anew, as the log and our docs tell, the file stays so.
func TestRow11_ATornTailDropsTheLastScriptAsAWhole(t *testing.T) {
	t.Parallel()
	dir, all := deeds(t)
	for _, d := range all {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			for _, at := range d.points() {
				want := d.before
				if at == d.to {
					want = d.after
				}
				startTorn(t, dir, at, want)
			}
		})
	}
}

// points are places in the file: one in a deed, and in the full run many, where it ends, and just before.
func (d *deed) points() (points []int64) {
	for range shape(1, 20) {
		points = append(points, d.from+rand.Int64N(d.to-d.from))
	}
	points = append(points, shape(nil, []int64{d.to - 1, d.to})...)
	slices.Sort(points)
	return slices.Compact(points)
}

// startTorn starts a server on a copy of the files, cut there, twice.
func startTorn(t *testing.T, from string, at int64, want map[string]string) {
	t.Helper()
	dir := memoryDir(t)
	require.NoError(t, os.CopyFS(dir, os.DirFS(from)))
	require.NoError(t, os.Truncate(appendOnlyFile(t, dir), at))
	server := redistest.Server(t, &redisproc.Options{AppendOnly: true, AppendFsync: "always", Dir: dir, Args: noRewrites})
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	look := func(when string) {
		require.Equal(t, want, redistest.Dump(t, rdb, keys.DefaultPrefix, queueName), "cut at %d, %s", at, when)
		redistest.CheckQueue(t, rdb, keys.DefaultPrefix, queueName)
	}
	look("at the next start")
	rewrite(t, rdb)
	require.NoError(t, server.Kill())
	require.NoError(t, server.Restart(t.Context()))
	look("at the start after that")
	require.NoError(t, server.Stop(t.Context()))
}

// A byte in the middle of the append-only file is wrong. Redis refuses to start, says what is wrong and how it can be
// repaired, and leaves the file alone; producers and consumers wait. With the byte restored nothing is lost. With what
// redis-check-aof leaves, which is all before the byte, the queue is in order, and all go on.
func TestRow11_WithAWrongByteInTheMiddleTheServerRefusesToStartAndAllGoOnAfterTheRepair(t *testing.T) {
	t.Parallel()
	for name, repair := range map[string]func(r *rig, was []byte) (loses bool){
		"restored": func(r *rig, was []byte) bool {
			require.NoError(r.t, os.WriteFile(appendOnlyFile(r.t, r.server.Dir()), was, 0o600))
			return false
		},
		"redis-check-aof": checkAOF,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, rigOptions{fsync: "always", args: noRewrites, later: stays, bare: true})
			start := time.Now()
			for range 20 {
				r.flows()
			}
			killed := time.Now()
			require.NoError(t, r.server.Kill())
			file := appendOnlyFile(t, r.server.Dir())
			was, wrong := breakMiddle(t, file)

			require.Eventually(t, func() bool {
				ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
				defer cancel()
				require.Error(t, r.server.Restart(ctx))
				return strings.Contains(r.log(), "Bad file format reading the append only file")
			}, time.Minute, time.Millisecond)
			require.Contains(t, r.log(), "redis-check-aof --fix")
			now, err := os.ReadFile(file)
			require.NoError(t, err)
			require.True(t, bytes.Equal(wrong, now), "a server that does not start changes nothing")

			loses := repair(r, was)
			r.restart()
			r.fault("wrong byte", killed, time.Now(), record.Outage)
			if loses {
				r.fault("repaired", start, time.Now(), record.Loses)
			}
			r.flows()
			report := r.judge()
			fine(t, report)
			require.Positive(t, report.Totals.Acked)
			require.Equal(t, loses, report.Totals.LostExcused > 0, "%d are lost", report.Totals.LostExcused)
			t.Logf("%s: %d of %d acknowledged enqueues are lost", name, report.Totals.LostExcused, report.Totals.Acknowledged)
		})
	}
}

// breakMiddle makes the first byte of a command in the middle of the file another one, and returns the file's bytes before
// and after.
func breakMiddle(t *testing.T, file string) (was, wrong []byte) {
	t.Helper()
	was, err := os.ReadFile(file)
	require.NoError(t, err)
	half := len(was) / 2
	at := bytes.Index(was[half:], []byte("\r\n*"))
	require.GreaterOrEqual(t, at, 0, "a command begins in the second half")
	wrong = bytes.Clone(was)
	wrong[half+at+2] ^= 1
	require.NoError(t, os.WriteFile(file, wrong, 0o600))
	return was, wrong
}

// checkAOF repairs the file as the server's log tells.
func checkAOF(r *rig, _ []byte) (loses bool) {
	r.t.Helper()
	file := filepath.Join(r.server.Dir(), "appendonlydir", "appendonly.aof.manifest")
	if _, err := os.Stat(file); err != nil {
		file = appendOnlyFile(r.t, r.server.Dir())
	}
	cmd := exec.Command("redis-check-aof", "--fix", file)
	cmd.Stdin = strings.NewReader("y\n")
	out, err := cmd.CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		r.t.Skip("no redis-check-aof on PATH")
	}
	require.NoError(r.t, err, "%s", out)
	return true
}
