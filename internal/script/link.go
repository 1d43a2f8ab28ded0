package script

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// The connections of a Link's own: made when they are first needed, few, and never old, since an idle connection can die
// without a word.
const (
	spareConnections = 8
	spareIdle        = 2
	spareMaxIdleTime = 10 * time.Second
)

// A Link is a user's client with what we need beside it: a few connections of our own, and what is known of whether the
// server can be reached. Runners of one client can share one. It is safe for concurrent use.
type Link struct {
	rdb   redis.UniversalClient
	trail *trail // nil: of no client of Sentinels

	worked            atomic.Bool // a connection of our own has
	both, ours, users gate        // for all calls once that is so; before, apart
	probes            atomic.Int64

	mu     sync.Mutex
	spare  redis.UniversalClient
	closed bool
	inUse  atomic.Int64 // of spare

	ctx context.Context // ends with Close
	end context.CancelFunc

	doubted atomic.Bool    // the client's idle connections are being asked whether they live
	pings   sync.WaitGroup // that ask them
}

// NewLink does no I/O.
func NewLink(rdb redis.UniversalClient) *Link {
	l := &Link{rdb: rdb, trail: newTrail(rdb)}
	l.both.most, l.ours.most, l.users.most = lastDialWait, longDialWait, longDialWait
	l.ctx, l.end = context.WithCancel(context.Background())
	return l
}

// Close ends the connections of our own; calls that use them fail. Later ones use the client's.
func (l *Link) Close() error {
	l.mu.Lock()
	spare := l.spare
	l.spare, l.closed = nil, true
	l.mu.Unlock()
	l.end()
	l.pings.Wait()
	if spare == nil {
		return nil
	}
	return spare.Close()
}

// mostPings bounds how many connections are asked at a time.
const mostPings = 64

// doubt is called when a call on one of the client's connections had no answer in time: where one has died without a
// word, others may have. All that are idle are asked at once, so that the client finds the dead ones out within one of
// its timeouts, not one after the other; calls go out on our own connections meanwhile.
func (l *Link) doubt() {
	client, ok := l.rdb.(*redis.Client)
	if !ok {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	idle, patience := min(int(client.PoolStats().IdleConns), mostPings), client.Options().ReadTimeout
	if l.closed || idle == 0 || patience <= 0 || !l.doubted.CompareAndSwap(false, true) {
		return
	}
	l.pings.Go(func() {
		defer l.doubted.Store(false)
		ctx, cancel := context.WithTimeout(l.ctx, patience) // for a connection that must be dialled first
		defer cancel()
		var all sync.WaitGroup
		for range idle {
			all.Go(func() { _ = client.Process(ctx, once{redis.NewCmd(ctx, "time")}) })
		}
		all.Wait()
	})
}

// follow has a look where the client leads now, if that may have changed.
func (l *Link) follow() {
	if l.trail == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed && l.trail.due(time.Now()) {
		l.pings.Go(func() { l.trail.look(l.ctx) })
	}
}

// own is the client of our own connections, or the user's where there can be none, or none any more.
func (l *Link) own() redis.UniversalClient {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return l.rdb
	}
	if l.spare == nil {
		// The pool may be larger than what we use of it: it counts failed dials up to its size, and then dials once a
		// second only.
		l.spare = l.OwnClient(256*spareConnections, func(t *Tuning) {
			t.ConnMaxIdleTime, t.MaxIdleConns = spareMaxIdleTime, spareIdle
		})
	}
	if l.spare == nil {
		return l.rdb
	}
	return l.spare
}

// Do sends a plain command once, on the client's connections or, aside, on our own; the first argument is its key. What
// it answers is read from the command.
func (l *Link) Do(ctx context.Context, aside bool, args ...any) *redis.Cmd {
	cmd := redis.NewCmd(ctx, args...)
	cmd.SetFirstKeyPos(1)
	var most int64
	if aside {
		most = spareConnections / 2
	}
	err := l.use(most, func(rdb redis.UniversalClient) error {
		_ = rdb.Process(ctx, once{cmd}) // the command holds the error
		return cmd.Err()
	})
	if err != nil {
		cmd.SetErr(err)
	}
	return cmd
}

// use runs a call on one of at most so many connections of our own, or with 0 on the client's. It returns an error
// instead where the server cannot be reached; call returns the error that tells that.
func (l *Link) use(most int64, call func(redis.UniversalClient) error) error {
	l.follow()
	defer l.follow()
	g := l.gateFor(most)
	if g != nil {
		probe, err := g.enter(time.Now())
		idle := most == 0 && l.hasIdle()
		switch {
		case err != nil && !idle:
			return err
		case probe && g == &l.both && !idle && l.probes.Add(1)%probesOfOurs != 0:
			most = spareConnections // whose dials are not repeated by the client
		}
	}
	if most == 0 && l.doubted.Load() {
		most = spareConnections / 2
	}
	rdb := l.rdb
	if most > 0 {
		defer l.inUse.Add(-1)
		if l.inUse.Add(1) <= most {
			rdb = l.own()
		}
	}
	err := call(rdb)
	Reload(rdb, err)
	if errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) && !isDial(err) {
		return nil // says nothing about the server
	}
	if rdb != l.rdb && !isDial(err) && !redis.HasErrorPrefix(err, "ERR max number of clients") {
		l.worked.Store(true)
	}
	if g != nil {
		g.leave(time.Now(), err)
	}
	return nil
}

// Of so many probes all but one use our own connections.
const probesOfOurs = 16

// gateFor is the gate that a call has to pass. As long as no connection of our own has ever worked, their failures say
// nothing about the user's: a copy of the client's options may not lead where the client does, as with a hook that dials.
func (l *Link) gateFor(most int64) *gate {
	switch _, single := l.rdb.(*redis.Client); {
	case !single:
		return nil // each node of a cluster is reached, or not, by itself
	case l.worked.Load():
		return &l.both
	case most > 0:
		return &l.ours
	}
	return &l.users
}

// hasIdle reports whether the client has a connection that was made before: no dial is needed then.
func (l *Link) hasIdle() bool {
	c, ok := l.rdb.(*redis.Client)
	return ok && c.PoolStats().IdleConns > 0
}

// OwnClient makes a client out of a copy of the user's options, with a pool of its own of up to n connections, which
// repeats nothing by itself; nil where it cannot be made: of anything but a *redis.Client or a *redis.ClusterClient.
// Hooks are not copied. tune may change what is common to both kinds. The caller closes it.
func (l *Link) OwnClient(n int, tune func(*Tuning)) redis.UniversalClient {
	t := Tuning{MaxIdleConns: n}
	switch c := l.rdb.(type) {
	case *redis.ClusterClient:
		o := *c.Options()
		t.ReadTimeout, t.ConnMaxIdleTime = o.ReadTimeout, o.ConnMaxIdleTime
		tune(&t)
		o.MaxRetries, o.DialerRetries, o.ReadTimeout, o.ConnMaxIdleTime = -1, 1, t.ReadTimeout, t.ConnMaxIdleTime
		o.PoolSize, o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns = n, 0, t.MaxIdleConns, 0
		return redis.NewClusterClient(&o)
	case *redis.Client:
		o := *c.Options()
		if l.trail != nil {
			o.Dialer = l.trail.own
		}
		// A fresh one: the user's client writes into its own whenever it connects, so it can be neither shared nor read.
		o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
		t.ReadTimeout, t.ConnMaxIdleTime = o.ReadTimeout, o.ConnMaxIdleTime
		tune(&t)
		o.MaxRetries, o.DialerRetries, o.ReadTimeout, o.ConnMaxIdleTime = -1, 1, t.ReadTimeout, t.ConnMaxIdleTime
		o.PoolSize, o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns = n, 0, t.MaxIdleConns, 0
		return redis.NewClient(&o)
	}
	return nil
}

// Tuning is what differs between clients of our own.
type Tuning struct {
	ReadTimeout     time.Duration
	ConnMaxIdleTime time.Duration
	MaxIdleConns    int
}
