package script

import (
	"context"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/internal/netfault"
	"github.com/leaseq/leaseq/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// Two small scripts that stand for all: one that must run once, and one that gives something out.
var (
	countScript = MustLoad(os.DirFS("testdata"), "count.lua")
	grabScript  = MustLoad(os.DirFS("testdata"), "grab.lua")
)

// patience bounds every wait for a state that has to come.
const patience = 20 * time.Second

// A desk is the sessions of one process on a queue of the test's own.
type desk struct {
	*Sessions
	rdb    *redis.Client // what the sessions use
	direct *redis.Client // past any proxy
	keys   *keys.Partition
}

// newDesk makes sessions on a client. direct must reach the same server.
func newDesk(t *testing.T, queue string, rdb, direct *redis.Client) *desk {
	t.Helper()
	p, err := keys.New(keys.DefaultPrefix, queue, 0)
	require.NoError(t, err)
	d := &desk{Sessions: NewSessions(NewRunner(rdb, p), "test/1"), rdb: rdb, direct: direct, keys: p}
	for _, s := range append(Own(), countScript, grabScript) { // so that each request below is one EVALSHA
		require.NoError(t, direct.ScriptLoad(t.Context(), s.Source()).Err())
	}
	return d
}

// plainDesk works on the shared server, and is closed when the test ends.
func plainDesk(t *testing.T) *desk {
	t.Helper()
	queue := redistest.Queue(t)
	rdb := redistest.Client(t)
	d := newDesk(t, queue, rdb, rdb)
	d.closeAtEnd(t)
	return d
}

// faultyDesk works on the shared server through a proxy. change may alter the client's options; nil leaves them.
func faultyDesk(t *testing.T, change func(*redis.Options)) (*desk, *netfault.Proxy) {
	t.Helper()
	queue := redistest.Queue(t)
	proxy := redistest.Proxy(t, redistest.Addr(t))
	d := newDesk(t, queue, through(t, proxy, change), redistest.Client(t))
	d.closeAtEnd(t)
	return d, proxy
}

func through(t *testing.T, proxy *netfault.Proxy, change func(*redis.Options)) *redis.Client {
	t.Helper()
	o := redistest.Options(t)
	o.Addr = proxy.Addr()
	if change != nil {
		change(o)
	}
	rdb := redis.NewClient(o)
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

func (d *desk) closeAtEnd(t *testing.T) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		require.NoError(t, d.Close(ctx))
	})
}

// key is the full name of one of the queue's keys.
func (d *desk) key(name string) string { return d.keys.Key(name) }

// stat reads a counter.
func (d *desk) stat(t *testing.T, name string) int {
	t.Helper()
	text, err := d.direct.HGet(context.Background(), d.key("stats"), name).Result()
	if err == redis.Nil {
		return 0
	}
	require.NoError(t, err)
	n, err := strconv.Atoi(text)
	require.NoError(t, err)
	return n
}

// count makes a call that adds one to a counter.
func count(field string) *Call {
	return &Call{Op: "count", Script: countScript, Args: []any{field}}
}

// grab makes a call that is given n numbers, or fewer.
func grab(n int) *Call {
	return &Call{
		Op: "grab", Script: grabScript, Claim: n,
		ClaimArgs: func(seen int64, n int) []any { return []any{seen, n} },
		Seen: func(reply []any) int64 {
			first, given := grabbed(reply)
			return first + int64(given) - 1
		},
	}
}

func grabbed(reply []any) (first int64, n int) {
	if len(reply) != 3 {
		return 0, 0
	}
	text, _ := reply[1].(string)
	first, _ = strconv.ParseInt(text, 10, 64)
	given, _ := reply[2].(int64)
	return first, int(given)
}

// A request is one EVALSHA that a proxy saw.
type request struct{ session, number, args string }

// asks reads a command if it is the script's.
func asks(cmd []string, s *Script) (request, bool) {
	at := 3 + len(s.Keys)
	if cmd[0] != "evalsha" || cmd[1] != s.SHA() || len(cmd) < at+2 {
		return request{}, false
	}
	r := request{session: cmd[at], number: cmd[at+1]}
	for _, arg := range cmd[at+2:] {
		r.args += arg + " "
	}
	return r, true
}

// resolved waits for the truth about a call whose outcome was unknown.
func resolved(t *testing.T, err error) error {
	t.Helper()
	var unknown *UnknownError
	require.ErrorAs(t, err, &unknown)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	truth := unknown.Resolve(ctx)
	require.NoError(t, ctx.Err(), "it must become known")
	return truth
}

// next receives what has to come.
func next(t *testing.T, from <-chan error) error {
	t.Helper()
	select {
	case err := <-from:
		return err
	case <-time.After(patience):
		require.FailNow(t, "nothing comes")
		return nil
	}
}

// truthOf is what came of a call whose context ended, however soon that was known.
func truthOf(t *testing.T, err error, c *Call) error {
	t.Helper()
	if err == nil && c.Err == nil {
		return nil
	}
	if err == nil {
		err = c.Err
	}
	return resolved(t, err)
}
