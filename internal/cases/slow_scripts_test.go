package cases

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/redisproc"
)

// A slowLog has a server keep script calls that take longer than a bound.
//
// Redis measures by the wall. On a machine that runs other things too, a part of what it counts is time in which the
// server was ready to run and had no processor. Linux tells how much that was in all; no call is excused beyond it.
type slowLog struct {
	rdb    *redis.Client
	pid    int
	bound  time.Duration
	waited time.Duration // when the log began
}

func keepSlowScripts(t testing.TB, server *redisproc.Server, rdb *redis.Client, bound time.Duration) *slowLog {
	t.Helper()
	require.NoError(t, rdb.ConfigSet(t.Context(), "slowlog-max-len", "10000").Err())
	require.NoError(t, rdb.ConfigSet(t.Context(), "slowlog-log-slower-than", strconv.FormatInt(bound.Microseconds(), 10)).Err())
	return &slowLog{rdb: rdb, pid: server.Pid(), bound: bound, waited: waitedForProcessor(server.Pid())}
}

// waitedForProcessor is how long the threads of a process have been ready to run in their lives and had no processor,
// all together; 0 where the system does not tell.
func waitedForProcessor(pid int) time.Duration { return schedule(pid, 1) }

// ranOnProcessor is for how long they have run.
func ranOnProcessor(pid int) time.Duration { return schedule(pid, 0) }

func schedule(pid, field int) (sum time.Duration) {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid)) // fails for wrong patterns only
	for _, thread := range threads {
		text, err := os.ReadFile(thread)
		if fields := strings.Fields(string(text)); err == nil && len(fields) > field {
			ns, _ := strconv.ParseInt(fields[field], 10, 64)
			sum += time.Duration(ns)
		}
	}
	return sum
}

// check requires that no script call has taken longer than the bound.
func (s *slowLog) check(t testing.TB) {
	t.Helper()
	entries, err := s.rdb.SlowLogGet(t.Context(), -1).Result()
	require.NoError(t, err)
	var slow []string
	beyond := time.Duration(0)
	for _, entry := range entries {
		if len(entry.Args) > 0 && strings.HasPrefix(strings.ToLower(entry.Args[0]), "eval") {
			slow = append(slow, fmt.Sprint(entry.Duration, " ", entry.Args[:min(len(entry.Args), 4)]))
			beyond += entry.Duration - s.bound
		}
	}
	waited := waitedForProcessor(s.pid) - s.waited
	assert.LessOrEqual(t, beyond, waited, "script calls took longer than %v, and the server has not waited so long for a processor: %v", s.bound, slow)
	t.Logf("%d script calls of more than %v; the server waited %v for a processor", len(slow), s.bound, waited)
}
