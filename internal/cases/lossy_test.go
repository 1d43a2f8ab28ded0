package cases

import (
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/internal/netfault"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/internal/script"
	"github.com/leaseq/leaseq/lease"
	"github.com/leaseq/leaseq/reliable"
)

// A detour is a proxy before the shared server and a client behind it. Every script is loaded beforehand, so that a
// command on its way can be told by its digest.
type detour struct {
	*netfault.Proxy
	rdb *redis.Client
}

// newDetour makes one with go-redis' defaults, its own three repeats included.
func newDetour(t testing.TB) *detour {
	t.Helper()
	return detourTo(t, nil)
}

// detourTo lets a case change the client's options.
func detourTo(t testing.TB, change func(o *redis.Options)) *detour {
	t.Helper()
	direct := redistest.Client(t)
	for _, one := range allScripts() {
		sha, err := direct.ScriptLoad(t.Context(), one.Source()).Result()
		require.NoError(t, err)
		require.Equal(t, one.SHA(), sha)
	}
	d := &detour{Proxy: redistest.Proxy(t, redistest.Addr(t))}
	d.rdb = d.client(t, change)
	return d
}

// client makes a further client behind the proxy.
func (d *detour) client(t testing.TB, change func(o *redis.Options)) *redis.Client {
	t.Helper()
	o := redistest.Options(t)
	o.Addr = d.Addr()
	if change != nil {
		change(o)
	}
	rdb := redis.NewClient(o)
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	return rdb
}

func allScripts() []*script.Script { return append(script.Own(), lease.Scripts()...) }

var scriptNames = func() map[string]*script.Script {
	byDigest := map[string]*script.Script{}
	for _, one := range allScripts() {
		byDigest[one.SHA()] = one
	}
	return byDigest
}()

// A scriptCall is a script on its way, as a proxy sees it.
type scriptCall struct {
	Name     string
	Numbered string   // session and number, "" where the script has none
	Args     []string // ARGV, cut as the proxy cuts
}

// is says whether the call is, or holds, one of the script of that name.
func (c scriptCall) is(name string) bool { return slices.Contains(strings.Split(c.Name, "+"), name) }

// scriptIn reads a command; false means that it is no script of ours.
func scriptIn(cmd []string) (scriptCall, bool) {
	if len(cmd) < 3 || !strings.EqualFold(cmd[0], "evalsha") || scriptNames[cmd[1]] == nil {
		return scriptCall{}, false
	}
	one := scriptNames[cmd[1]]
	n, err := strconv.Atoi(cmd[2])
	if err != nil || len(cmd) < 3+n {
		return scriptCall{}, false
	}
	call := scriptCall{Name: one.Name, Args: cmd[3+n:]}
	if one.Numbered() && len(call.Args) > 1 {
		call.Numbered = call.Args[0] + " " + call.Args[1]
	}
	return call, true
}

// dropEachOnce drops the first reply of every call of the named scripts: of a numbered call the reply to its first try,
// of the others, and of claims, which never repeat a number, every second one. It returns how many were dropped.
func (d *detour) dropEachOnce(names ...string) (dropped func() int) {
	dropper := &onceDropper{names: names, seen: map[string]bool{}}
	d.Decide(dropper.decide)
	return dropper.count
}

type onceDropper struct {
	names []string
	mu    sync.Mutex
	seen  map[string]bool
	odd   bool
	n     int
}

func (o *onceDropper) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.n
}

func (o *onceDropper) decide(cmd []string) netfault.Action {
	call, ok := scriptIn(cmd)
	if !ok || !slices.ContainsFunc(o.names, call.is) {
		return netfault.Pass
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	drop := !o.odd
	if call.Numbered != "" && call.Name != "claim" {
		drop = !o.seen[call.Numbered]
		o.seen[call.Numbered] = true
	} else {
		o.odd = drop
	}
	if !drop {
		return netfault.Pass
	}
	o.n++
	return netfault.DropReply
}

// repeats is a go-redis hook that sends a command, or a whole pipeline, again when its answer was lost, byte for byte,
// whatever the command says of that: a client that repeats by itself. lost, if set, is called before each repeat.
type repeats struct {
	lost func()
}

const mostRepeats = 3

// answerLost says that a command may have run although there is no answer.
func answerLost(err error) bool {
	var reply redis.Error
	var op *net.OpError
	return err != nil && !errors.As(err, &reply) && !(errors.As(err, &op) && op.Op == "dial")
}

func (r *repeats) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r *repeats) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return r.again(func() error {
			cmd.SetErr(nil)
			return next(ctx, cmd)
		})
	}
}

func (r *repeats) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return r.again(func() error {
			for _, cmd := range cmds {
				cmd.SetErr(nil)
			}
			return next(ctx, cmds)
		})
	}
}

func (r *repeats) again(send func() error) error {
	err := send()
	for n := 0; n < mostRepeats && answerLost(err); n++ {
		if r.lost != nil {
			r.lost()
		}
		err = send()
	}
	return err
}

// repeaters are the two ways in which a call whose reply was lost is sent again.
var repeaters = []struct {
	Name string
	Hook func(rdb *redis.Client)
}{
	{"our runner repeats", func(*redis.Client) {}},
	{"the client repeats by itself", func(rdb *redis.Client) { rdb.AddHook(&repeats{}) }},
}

// A tally counts handler starts outside of the product, in another database of the server.
type tally struct {
	rdb *redis.Client
	key string
}

func newTally(t testing.TB, queue string) *tally {
	t.Helper()
	o := redistest.Options(t)
	o.DB++
	c := &tally{rdb: redis.NewClient(o), key: "case:" + queue + ":starts"}
	t.Cleanup(func() {
		require.NoError(t, c.rdb.Del(context.Background(), c.key).Err())
		require.NoError(t, c.rdb.Close())
	})
	return c
}

// start counts one, and panics where it cannot: a start that is not counted would hide a fault.
func (c *tally) start(id string) {
	if err := c.rdb.HIncrBy(context.Background(), c.key, id, 1).Err(); err != nil {
		panic(err)
	}
}

// counts returns the starts by ID.
func (c *tally) counts(t testing.TB) map[string]int {
	t.Helper()
	all, err := c.rdb.HGetAll(context.Background(), c.key).Result()
	require.NoError(t, err)
	out := make(map[string]int, len(all))
	for id, text := range all {
		out[id], err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	return out
}

// newStore makes a Store of a client, closed before the queue is checked.
func newStore(t testing.TB, rdb *redis.Client, queue string) *lease.Store {
	t.Helper()
	s, err := lease.NewStore(rdb, queue, nil)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		require.NoError(t, s.Close(ctx))
	})
	return s
}

// newQueueOn makes a Queue of a client, closed before the queue is checked.
func newQueueOn(t testing.TB, rdb *redis.Client, name string, o *reliable.QueueOptions) *reliable.Queue {
	t.Helper()
	q, err := reliable.New(rdb, name, o)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		require.NoError(t, q.Close(ctx))
	})
	return q
}

// sidecar sweeps a queue until the test ends. The first sweep of a queue would begin a grace; this one says that no
// holder lives yet. The queue's policy has to be published before.
func sidecar(t testing.TB, queue string) {
	t.Helper()
	store := newStore(t, redistest.Client(t), queue)
	_, err := store.Expire(t.Context(), 1, true)
	require.NoError(t, err)
	sweeper, err := lease.NewSweeper(store, nil)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- sweeper.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
}

func keysOf(t testing.TB, queue string) *keys.Partition {
	t.Helper()
	p, err := keys.New(keys.DefaultPrefix, queue, 0)
	require.NoError(t, err)
	return p
}

// awaitFrom receives what must come, and fails the test where it does not.
func awaitFrom[T any](t testing.TB, from <-chan T, what string) T {
	t.Helper()
	select {
	case got := <-from:
		return got
	case <-time.After(shape(time.Minute, 3*time.Minute)):
		require.Fail(t, "it did not come", what)
		panic("unreachable")
	}
}

// A countdown closes all when done was called n times; further calls do nothing, but are counted.
type countdown struct {
	n     int64
	count atomic.Int64
	all   chan struct{}
}

func newCountdown(n int) *countdown { return &countdown{n: int64(n), all: make(chan struct{})} }

func (c *countdown) done() {
	if c.count.Add(1) == c.n {
		close(c.all)
	}
}
