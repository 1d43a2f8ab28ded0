package script

import (
	"context"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/internal/redistest"
)

// A pair is two servers, and a client as of Sentinels, which dials the one that they name.
type pair struct {
	servers [2]*redis.Client
	named   atomic.Int64
	broken  atomic.Bool // the Sentinels do not answer
	dials   atomic.Int64
	rdb     *redis.Client
}

func newPair(t *testing.T) *pair {
	t.Helper()
	p := &pair{}
	var addrs [2]string
	for i := range addrs {
		s := redistest.Server(t, nil)
		addrs[i], p.servers[i] = s.Addr(), redistest.AdminClient(t, s, nil)
		require.NoError(t, p.servers[i].Set(t.Context(), "who", i, 0).Err())
	}
	p.rdb = redis.NewClient(&redis.Options{Addr: failoverAddr, PoolSize: 1, Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
		p.dials.Add(1)
		if p.broken.Load() {
			return nil, context.DeadlineExceeded
		}
		return new(net.Dialer).DialContext(ctx, network, addrs[p.named.Load()])
	}})
	t.Cleanup(func() { _ = p.rdb.Close() })
	return p
}

// who answers on the client's connections, or aside on our own.
func (p *pair) who(t *testing.T, l *Link, aside bool) string {
	t.Helper()
	text, _ := l.Do(t.Context(), aside, "get", "who").Text()
	return text
}

// leave has the client's own connection end, as it does by itself when it hears of a new primary.
func (p *pair) leave(t *testing.T) {
	t.Helper()
	id, err := p.rdb.ClientID(t.Context()).Result()
	require.NoError(t, err)
	n, err := p.servers[0].ClientKillByFilter(t.Context(), "id", itoa(id)).Result()
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
}

func TestConnectionsOfOurOwnFollowTheClientToANewPrimary(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	l := NewLink(p.rdb)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	require.Equal(t, "0", p.who(t, l, false))
	require.Equal(t, "0", p.who(t, l, true))
	waiting := l.OwnClient(1, func(t *Tuning) { t.ReadTimeout = time.Minute })
	t.Cleanup(func() { _ = waiting.Close() })
	popped := make(chan error, 1)
	go func() { popped <- waiting.Do(context.Background(), "blpop", "nothing", 30).Err() }()
	require.Eventually(t, func() bool {
		text, err := p.servers[0].Info(t.Context(), "clients").Result()
		return err == nil && redisField(text, "blocked_clients") == "1"
	}, 20*time.Second, time.Millisecond)

	p.named.Store(1)
	require.Equal(t, "0", p.who(t, l, true), "nobody has heard of it")
	p.broken.Store(true)
	p.leave(t)
	require.Eventually(t, func() bool { return p.who(t, l, false) == "" }, 20*time.Second, time.Millisecond)
	p.broken.Store(false) // a look that failed is repeated
	require.Eventually(t, func() bool { return p.who(t, l, false) == "1" && p.who(t, l, true) == "1" }, 20*time.Second, time.Millisecond)
	require.Error(t, <-popped, "a blocking read ends, whose server still lives")
}

func TestNobodyLooksWhereTheClientLeadsWhileItStays(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	l := NewLink(p.rdb)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	for range 2 {
		require.Equal(t, "0", p.who(t, l, false))
		require.Equal(t, "0", p.who(t, l, true))
	}
	looked := func() bool {
		l.trail.mu.Lock()
		defer l.trail.mu.Unlock()
		return !l.trail.looking && l.trail.dialled > 0
	}
	require.Eventually(t, func() bool { p.who(t, l, true); return looked() }, 20*time.Second, time.Millisecond)
	before := p.dials.Load()
	for began := time.Now(); time.Since(began) < 3*lookGap; {
		require.Equal(t, "0", p.who(t, l, false))
		require.Equal(t, "0", p.who(t, l, true))
	}
	require.Equal(t, before, p.dials.Load())
	require.Nil(t, newTrail(p.servers[0]), "a client of one address")
}

// TestADeadNodeOfAClusterIsLeftAtOnce: the client by itself would dial it for a minute.
func TestADeadNodeOfAClusterIsLeftAtOnce(t *testing.T) {
	t.Parallel()
	nodes := redistest.Cluster(t, 2, nil)
	partition, err := keys.New("p", "q", 0)
	require.NoError(t, err)
	slot, err := redistest.AdminClient(t, nodes[0], nil).ClusterKeySlot(t.Context(), partition.Key("due")).Result()
	require.NoError(t, err)
	owner, other := nodes[0], nodes[1]
	if slot >= 16384/2 {
		owner, other = other, owner
	}
	var loads atomic.Int64
	rdb := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: []string{owner.Addr()},
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) { // as the nodes tell before, and after
			addr := owner.Addr()
			if loads.Add(1) > 1 {
				addr = other.Addr()
			}
			return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: addr}}}}, nil
		},
	})
	t.Cleanup(func() { _ = rdb.Close() })
	r := NewRunner(rdb, partition)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	first := &Request{Script: openScript, Args: []any{"x", "y"}}
	r.Send(t.Context(), first)
	require.NoError(t, first.Err)
	require.EqualValues(t, 1, loads.Load())
	require.NoError(t, owner.Kill())
	require.Eventually(t, func() bool {
		r.Send(t.Context(), &Request{Script: openScript, Args: []any{"x", "y"}})
		return loads.Load() > 1
	}, 20*time.Second, 10*time.Millisecond)
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

func redisField(info, name string) string {
	_, rest, _ := strings.Cut(info, name+":")
	value, _, _ := strings.Cut(rest, "\r\n")
	return value
}
