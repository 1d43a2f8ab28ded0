package script

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Link is a user's client with what we need beside it: a few connections of our own, and what is known of whether the
// server can be reached. Runners of one client can share one. It is safe for concurrent use.
type Link struct {
	rdb   redis.UniversalClient
	trail *trail // nil: of no client of Sentinels

	worked            atomic.Bool // a connection of our own has
	both, ours, users gate        // for all calls once that is so; before, apart
	probes            atomic.Int64

	mu        sync.Mutex
	spare     *ownClient
	retired   map[*ownClient]struct{} // whose calls have not ended yet
	renewing  chan struct{}           // closed when what is to take spare's place has, or cannot; nil: nothing is
	unrenewed time.Time               // when nothing could
	closed    bool
	inUse     atomic.Int64 // of spare and what is retired

	ctx context.Context // ends with Close
	end context.CancelFunc

	doubted atomic.Bool    // the client's idle connections are being asked whether they live
	pings   sync.WaitGroup // that ask them, and fresh ones of ours
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
	ours := slices.Collect(maps.Keys(l.retired))
	if l.spare != nil {
		ours = append(ours, l.spare)
	}
	l.spare, l.retired, l.closed = nil, nil, true
	l.mu.Unlock()
	l.end()
	l.pings.Wait()
	var errs []error
	for _, one := range ours {
		errs = append(errs, one.Close())
	}
	return errors.Join(errs...)
}

// mostPings bounds how many connections are asked at a time.
const mostPings = 64

// doubt is called when a call on one of the client's connections had no answer in time: where one has died without a
// word, others may have. All that are idle are asked at once, so that the client finds the dead ones out within one of
// its timeouts, not one after the other; calls go out on our own connections meanwhile, which are fresh ones.
func (l *Link) doubt() {
	l.renew()
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

// Do sends a plain command once, on the client's connections or, aside, on our own; the first argument is its key. What
// it answers is read from the command.
func (l *Link) Do(ctx context.Context, aside bool, args ...any) *redis.Cmd {
	cmd := redis.NewCmd(ctx, args...)
	cmd.SetFirstKeyPos(1)
	by := onClients
	if aside {
		by = onOursAside
	}
	err := l.use(ctx, by, func(rdb redis.UniversalClient) error {
		_ = rdb.Process(ctx, once{cmd}) // the command holds the error
		return cmd.Err()
	})
	if err != nil {
		cmd.SetErr(err)
	}
	return cmd
}

// A way is on which connections a call goes out.
type way struct {
	most int64 // of our own at most so many may be in use; 0: the client's
	anew bool  // a call before it had no answer: idle ones of our own may be dead, too
}

var (
	onClients   = way{}
	onOurs      = way{most: spareConnections}
	onOursAgain = way{most: spareConnections, anew: true}
	onOursAside = way{most: spareConnections / 2, anew: true}
)

// use runs a call in one of the ways. It returns an error instead where the server cannot be reached; call returns the
// error that tells that.
func (l *Link) use(ctx context.Context, by way, call func(redis.UniversalClient) error) error {
	l.follow()
	defer l.follow()
	most := by.most
	var renewed <-chan struct{}
	if by.anew {
		renewed = l.renew()
	} else if most == 0 && l.doubted.Load() {
		by, renewed = onOursAside, l.underWay()
	}
	if renewed != nil {
		_ = Sleep(ctx, silence, renewed)
	}
	g := l.gateFor(most)
	if g != nil {
		probe, err := g.enter(time.Now())
		if err != nil || probe {
			idle := most == 0 && l.hasIdle()
			switch {
			case err != nil && !idle:
				return err
			case probe && g == &l.both && !idle && l.probes.Add(1)%probesOfOurs != 0:
				most = spareConnections // whose dials are not repeated by the client
			}
		}
	}
	most = max(most, by.most)
	rdb := l.rdb
	if most > 0 {
		defer l.inUse.Add(-1)
		if l.inUse.Add(1) <= most {
			if own := l.own(); own != nil {
				defer l.leave(own)
				rdb = own.UniversalClient
			}
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
