package cases

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/redisproc"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/reliable"
)

// realSite is a loopSite on a server of its own, to which everything happens that an injector only imitates.
type realSite struct {
	*loopSite
	server *redisproc.Server
	admin  *redis.Conn // one connection, made before
}

func newRealSite(t *testing.T) *realSite {
	t.Helper()
	s := &realSite{server: redistest.Server(t, nil)}
	client := func() *redis.Client {
		rdb := redis.NewClient(&redis.Options{Addr: s.server.Addr()})
		t.Cleanup(func() { _ = rdb.Close() })
		return rdb
	}
	direct := client()
	s.admin = direct.Conn()
	require.NoError(t, s.admin.Ping(t.Context()).Err())
	s.loopSite = &loopSite{
		name: "a server's faults", o: loopOptions(), over: make(chan struct{}), probed: make(chan time.Time, 1), heal: func() {},
		ofConsumer: client(), ofSidecar: client(), failsToo: true, still: watchStandstill(t),
	}
	t.Cleanup(func() { redistest.CheckQueue(t, direct, s.o.Prefix, "orders") })
	s.lane = laneOn(t, "orders", client(), s.o)
	s.enqueue(reliable.Item{ID: "long", Kind: "case"})
	s.run(t)
	return s
}

// tell sends the server one command of an administrator.
func (s *realSite) tell(t *testing.T, command ...any) {
	t.Helper()
	require.NoError(t, s.admin.Do(t.Context(), command...).Err(), "%v", command)
}

// realFaults are what a server does to its clients for a while. sick says that claims fail meanwhile, and so Health must.
var realFaults = []struct {
	name       string
	sick       bool
	begin, end func(t *testing.T, s *realSite)
}{
	{"BUSY", true, func(t *testing.T, s *realSite) {
		s.tell(t, "config", "set", "lua-time-limit", "20")
		hog := redis.NewClient(&redis.Options{Addr: s.server.Addr(), ReadTimeout: time.Minute, MaxRetries: -1})
		ended := make(chan error, 1)
		go func() { ended <- hog.Eval(context.Background(), "while true do end", nil).Err() }()
		t.Cleanup(func() {
			require.ErrorContains(t, awaitFrom(t, ended, "the end of the script"), "killed")
			require.NoError(t, hog.Close())
		})
		require.Eventually(t, func() bool { return redis.HasErrorPrefix(s.admin.Ping(t.Context()).Err(), "BUSY") }, 20*time.Second, time.Millisecond)
	}, func(t *testing.T, s *realSite) { s.tell(t, "script", "kill") }},
	{"READONLY", true,
		func(t *testing.T, s *realSite) { s.tell(t, "replicaof", "127.0.0.1", "1") },
		func(t *testing.T, s *realSite) { s.tell(t, "replicaof", "no", "one") }},
	{"OOM", false,
		func(t *testing.T, s *realSite) {
			s.tell(t, "config", "set", "maxmemory", "1")
			_, err := s.queue.Enqueue(t.Context(), reliable.Item{Kind: "case"})
			require.ErrorIs(t, err, reliable.ErrOutOfMemory)
		},
		func(t *testing.T, s *realSite) { s.tell(t, "config", "set", "maxmemory", "0") }},
	{"NOAUTH", true,
		func(t *testing.T, s *realSite) {
			s.tell(t, "config", "set", "requirepass", "secret")
			s.tell(t, "client", "kill", "type", "normal", "skipme", "yes")
		},
		func(t *testing.T, s *realSite) { s.tell(t, "config", "set", "requirepass", "") }},
	{"WRONGTYPE", true,
		func(t *testing.T, s *realSite) {
			key := s.keys.Key("sessions")
			s.tell(t, "eval", "redis.call('RENAME', KEYS[1], KEYS[2]); return redis.call('SET', KEYS[1], 'x')", "2", key, "aside")
		},
		func(t *testing.T, s *realSite) { s.tell(t, "rename", "aside", s.keys.Key("sessions")) }},
	{"frozen", true,
		func(t *testing.T, s *realSite) { require.NoError(t, s.server.Freeze()) },
		func(t *testing.T, s *realSite) { require.NoError(t, s.server.Thaw()) }},
	{"three disconnects within two seconds", false,
		func(t *testing.T, s *realSite) {
			for range 3 {
				s.tell(t, "client", "kill", "type", "normal", "skipme", "yes")
				<-time.After(300 * time.Millisecond)
			}
		},
		func(*testing.T, *realSite) {}},
}

// A real server answers BUSY for real, is read-only, full, locked, frozen, broken by somebody's hand, and disconnects.
// Health says so where nothing can be claimed, and within five seconds from the end of each a job is started.
func TestS43_LoopsOutliveWhatARealServerDoes(t *testing.T) {
	t.Parallel()
	s := newRealSite(t)
	s.startsAfter(t, time.Now())
	s.healthySoon(t)
	for _, one := range realFaults {
		one.begin(t, s)
		lasts := time.After(shape(500*time.Millisecond, 10*time.Second))
		if one.sick {
			s.unhealthySoon(t)
		}
		<-lasts
		one.end(t, s)
		end := s.still.now()
		took := s.still.less(end, s.startsAfter(t, end.at))
		t.Logf("%s: a job is started %v after its end", one.name, took.Round(time.Millisecond))
		assert.LessOrEqual(t, took, recoverBound, "%s: until a job is started", one.name)
		s.healthySoon(t)
	}
	s.add(t, shape(200, 1000))
	s.finishes(t)
}
