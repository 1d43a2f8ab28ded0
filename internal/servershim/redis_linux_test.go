package servershim

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/redisproc"
	"github.com/leaseq/leaseq/internal/redistest"
)

// A site is a redis-server with an append-only file and the shim.
type site struct {
	t      *testing.T
	shim   *Shim
	server *redisproc.Server
	rdb    *redis.Client
}

func newSite(t *testing.T, fsync string) *site {
	t.Helper()
	s := &site{t: t, shim: build(t)}
	s.server = redistest.Server(t, &redisproc.Options{AppendOnly: true, AppendFsync: fsync, Env: s.shim.Env()})
	s.rdb = redis.NewClient(&redis.Options{Addr: s.server.Addr(), MaxRetries: -1})
	t.Cleanup(func() { _ = s.rdb.Close() })
	state, err := s.shim.State()
	require.NoError(t, err)
	require.EqualValues(t, 1, state.Loads, "the server has taken the library")
	t.Cleanup(func() { require.NoError(t, s.shim.StallSyncs(false)) }) // before the server is stopped
	return s
}

func (s *site) set(names ...string) {
	s.t.Helper()
	for _, name := range names {
		require.NoError(s.t, s.rdb.Set(s.t.Context(), name, "1", 0).Err())
	}
}

// powerCut kills the server, makes the cut, starts it again, and returns what it still knows.
func (s *site) powerCut() map[string]bool {
	s.t.Helper()
	require.NoError(s.t, s.server.Kill())
	_, err := s.shim.CutToSynced(s.server.Dir())
	require.NoError(s.t, err)
	require.NoError(s.t, s.shim.StallSyncs(false))
	require.NoError(s.t, s.server.Restart(s.t.Context()))
	var names []string
	require.Eventually(s.t, func() bool { // the pool's old connections are dead
		names, err = s.rdb.Keys(s.t.Context(), "*").Result()
		return err == nil
	}, 10*time.Second, time.Millisecond)
	left := map[string]bool{}
	for _, name := range names {
		left[name] = true
	}
	return left
}

// sync waits until all that was written so far is on the disk.
func (s *site) sync() {
	s.t.Helper()
	files, err := filepath.Glob(filepath.Join(s.server.Dir(), "appendonlydir", "*.incr.aof"))
	require.NoError(s.t, err)
	if len(files) == 0 { // before Redis 7
		files = []string{filepath.Join(s.server.Dir(), "appendonly.aof")}
	}
	require.Len(s.t, files, 1)
	require.Eventually(s.t, func() bool {
		info, err := s.rdb.Info(s.t.Context(), "persistence").Result()
		if err != nil || !strings.Contains(info, "aof_buffer_length:0\r\n") {
			return false // Redis answers before it writes, while a sync is under way
		}
		var file syscall.Stat_t
		if syscall.Stat(files[0], &file) != nil {
			return false
		}
		noted, err := s.shim.synced()
		return err == nil && noted[keyOf(&file)] == file.Size
	}, 10*time.Second, time.Millisecond)
}

func (s *site) rewrite() {
	s.t.Helper()
	require.NoError(s.t, s.rdb.BgRewriteAOF(s.t.Context()).Err())
	require.Eventually(s.t, func() bool {
		info, err := s.rdb.Info(s.t.Context(), "persistence").Result()
		return err == nil && strings.Contains(info, "aof_rewrite_in_progress:0") && strings.Contains(info, "aof_rewrite_scheduled:0") &&
			strings.Contains(info, "aof_last_bgrewrite_status:ok")
	}, 20*time.Second, time.Millisecond)
}

func TestRedisShowsTheShiftedClock(t *testing.T) {
	t.Parallel()
	s := newSite(t, "no")
	for _, shift := range []time.Duration{time.Hour, -time.Hour, 0} {
		require.NoError(t, s.shim.Shift(shift))
		shown, err := s.rdb.Time(t.Context()).Result()
		require.NoError(t, err)
		require.InDelta(t, shift, time.Until(shown), float64(5*time.Second))
		inScript, err := s.rdb.Eval(t.Context(), "return tonumber(redis.call('TIME')[1])", nil).Int64()
		require.NoError(t, err)
		require.InDelta(t, shift, time.Until(time.Unix(inScript, 0)), float64(5*time.Second))
	}
}

func TestAPowerCutTakesNothingThatAlwaysHasAnswered(t *testing.T) {
	t.Parallel()
	s := newSite(t, "always")
	want := map[string]bool{}
	for round := range 3 {
		for i := range 20 {
			name := fmt.Sprint(round, "-", i)
			s.set(name)
			want[name] = true
		}
		if round == 1 {
			s.rewrite()
		}
		require.Equal(t, want, s.powerCut())
	}
}

func TestAPowerCutTakesWhatEverysecHadNotSynced(t *testing.T) {
	t.Parallel()
	s := newSite(t, "everysec")
	s.set("a")
	s.set("b")
	s.sync()
	require.NoError(t, s.shim.StallSyncs(true))
	s.set("c")
	awaitState(t, s.shim, func(state State) bool { return state.Waiting == 1 })
	s.set("d")
	require.Equal(t, map[string]bool{"a": true, "b": true}, s.powerCut())
	s.set("e")
	s.sync()
	require.Equal(t, map[string]bool{"a": true, "b": true, "e": true}, s.powerCut())
}

func TestWithoutASyncAPowerCutTakesAllSinceTheLastRewrite(t *testing.T) {
	t.Parallel()
	s := newSite(t, "no")
	s.set("a")
	s.rewrite()
	s.set("b")
	require.Equal(t, map[string]bool{"a": true}, s.powerCut())
	s.set("c")
	require.Equal(t, map[string]bool{"a": true}, s.powerCut())
	s.set("d")
	s.rewrite()
	require.Equal(t, map[string]bool{"a": true, "d": true}, s.powerCut())
}

func TestAKillAloneTakesNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t, "no")
	s.set("a", "b")
	require.NoError(t, s.server.Kill())
	require.NoError(t, s.server.Restart(t.Context()))
	require.Eventually(t, func() bool {
		n, err := s.rdb.DBSize(t.Context()).Result()
		return err == nil && n == 2
	}, 10*time.Second, time.Millisecond)
}

func TestWhileSyncsStallAlwaysAnswersNobody(t *testing.T) {
	t.Parallel()
	s := newSite(t, "always")
	s.set("a")
	require.NoError(t, s.shim.StallSyncs(true))
	answered := make(chan error, 1)
	go func() { answered <- s.rdb.Set(context.WithoutCancel(t.Context()), "b", "1", 0).Err() }()
	awaitState(t, s.shim, func(state State) bool { return state.Waiting == 1 })
	select {
	case err := <-answered:
		t.Fatalf("answered (%v) before it was synced", err)
	default:
	}
	require.NoError(t, s.shim.StallSyncs(false))
	require.NoError(t, <-answered)
	require.Equal(t, map[string]bool{"a": true, "b": true}, s.powerCut())
}
