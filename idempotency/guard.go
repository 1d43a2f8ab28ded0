package idempotency

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/internal/script"
)

// Defaults of Options.
const (
	DefaultLease       = 15 * time.Second
	DefaultRetention   = 24 * time.Hour
	DefaultResultLimit = 64 << 10

	minLease   = 100 * time.Millisecond
	maxEffects = 64 // of one job
)

// A Policy says what Begin does where it is not known whether an effect happened.
type Policy int

const (
	// Redo runs the effect again: at least once. Right for effects that the downstream makes once by itself, by a key of
	// its own, and for those of which two are better than none.
	Redo Policy = iota
	// Ask tells the caller, which asks the downstream, and then commits or runs the effect.
	Ask
)

// Options are the optional settings of a Guard; nil is valid.
type Options struct {
	// Prefix of all keys. Default "leaseq".
	Prefix string
	// Lease is for how long a holder that is silent keeps others from the key; while a permit is held it is moved on every
	// third of it. Default 15 s; at least 100 ms.
	Lease time.Duration
	// Retention is how long a key is remembered after its last change: how long results are replayed, and for how long the
	// key of a holder that died is in doubt. After it the key is absent, and the effect runs anew. Default 24 h; at least
	// twice the lease.
	Retention time.Duration
	// InDoubt is what to do where a holder died between Begin and Commit. Default [Redo].
	InDoubt Policy
	// ResultLimit is the greatest size of a result, in bytes. Default 64 KiB; at most 1 MiB.
	ResultLimit int
	// Holder names this process in Redis, for people. Default <host>/<pid>.
	Holder string
	// OnInDoubt is told of each key that was found in doubt, with either policy: as [Permit.Key] has it. It must not
	// block. Default: nobody is told.
	OnInDoubt func(key string, since time.Time)
}

// A Guard keeps the idempotency records of a queue's name, all in the queue's first partition. It needs no queue of that
// name, only the name. It is safe for concurrent use; Close it when it is not used any more.
type Guard struct {
	opts      Options
	rdb       redis.UniversalClient
	partition *keys.Partition
	runner    *script.Runner
	sessions  *script.Sessions

	tidy sync.Once

	mu     sync.Mutex
	held   map[*Permit]struct{} // those that the guard keeps alive itself
	beats  bool                 // the goroutine that keeps them runs
	closed bool
	ctx    context.Context // ends with Close
	end    context.CancelFunc
	all    sync.WaitGroup
}

// New makes a Guard; it does no I/O. rdb is never closed by it.
func New(rdb redis.UniversalClient, queue string, o *Options) (*Guard, error) {
	var opts Options
	if o != nil {
		opts = *o
	}
	if opts.Prefix == "" {
		opts.Prefix = keys.DefaultPrefix
	}
	if opts.Lease == 0 {
		opts.Lease = DefaultLease
	}
	if opts.Retention == 0 {
		opts.Retention = DefaultRetention
	}
	if opts.ResultLimit == 0 {
		opts.ResultLimit = DefaultResultLimit
	}
	if opts.Holder == "" {
		opts.Holder = script.DefaultHolder()
	}
	partition, err := keys.New(opts.Prefix, queue, 0)
	errs := []error{err, opts.check(), script.ValidateClient(rdb)}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("idempotency: %w", err)
	}
	g := &Guard{opts: opts, rdb: rdb, partition: partition, runner: script.NewRunner(rdb, partition), held: map[*Permit]struct{}{}}
	g.ctx, g.end = context.WithCancel(context.Background())
	g.sessions = script.NewSessions(g.runner, opts.Holder)
	return g, nil
}

// Beside reports whether the guard's records lie in the slot of a queue's jobs, and behind the same client: whether they
// can ride on the leases of these jobs.
func (g *Guard) Beside(rdb redis.UniversalClient, prefix, queue string) bool {
	same := rdb != nil && reflect.TypeOf(rdb).Comparable() && rdb == g.rdb
	partition, err := keys.New(prefix, queue, 0)
	return same && err == nil && partition.Guard("") == g.partition.Guard("")
}

func (o *Options) check() error {
	var errs []error
	if o.Lease < minLease {
		errs = append(errs, fmt.Errorf("Lease is %v: want at least %v", o.Lease, minLease))
	}
	if o.Retention < 2*o.Lease {
		errs = append(errs, fmt.Errorf("Retention is %v and Lease is %v: want a Retention of at least twice the Lease, or a holder's key could be forgotten while it works", o.Retention, o.Lease))
	}
	if o.InDoubt != Redo && o.InDoubt != Ask {
		errs = append(errs, fmt.Errorf("InDoubt is %d: want Redo or Ask", o.InDoubt))
	}
	if o.ResultLimit < 1 || o.ResultLimit > 1<<20 {
		errs = append(errs, fmt.Errorf("ResultLimit is %d: want 1 to %d bytes", o.ResultLimit, 1<<20))
	}
	errs = append(errs, script.ValidateHolder(o.Holder))
	return errors.Join(errs...)
}

// Close ends the contexts of the permits that are held, with cause [ErrClosed], waits until every call has its outcome,
// and ends every goroutine of the Guard. What was begun and not committed is in doubt once its lease is over. When ctx ends
// first its error is returned, as soon as the Redis client has given up the calls under way (its ReadTimeout).
func (g *Guard) Close(ctx context.Context) error {
	g.mu.Lock()
	g.closed = true
	held := make([]*Permit, 0, len(g.held))
	for p := range g.held {
		held = append(held, p)
	}
	clear(g.held)
	g.mu.Unlock()
	g.end()
	for _, p := range held {
		p.over(ErrClosed)
	}
	g.all.Wait()
	return g.sessions.Close(ctx)
}

//go:embed lua/*.lua
var luaFiles embed.FS

var luaLib = func() string {
	text, err := luaFiles.ReadFile("lua/lib.lua")
	if err != nil {
		panic("idempotency: " + err.Error())
	}
	return string(text)
}()

func load(name string) *script.Script { return script.MustLoad(luaFiles, "lua/"+name+".lua", luaLib) }

var (
	beginScript  = load("begin")
	commitScript = load("commit")
	giveUpScript = load("giveup")
	keepScript   = load("keep")
	lookScript   = load("look")
)

// Scripts lists the scripts of this package, for tests that check all scripts.
func Scripts() []*script.Script {
	return []*script.Script{beginScript, commitScript, giveUpScript, keepScript, lookScript}
}
