package script

import (
	"context"
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

// renewWithin bounds how long fresh connections of our own are waited for in the background. A call waits for them as long
// as for an answer.
const renewWithin = 5 * time.Second

// An ownClient is a client of our own connections.
type ownClient struct {
	redis.UniversalClient
	made    time.Time
	calls   int  // under way; under the Link's lock
	retired bool // closed when these have ended
}

// newSpare makes the client of our own connections; nil where there can be none.
func (l *Link) newSpare() *ownClient {
	// The pool may be larger than what we use of it: it counts failed dials up to its size, and then dials once a second
	// only.
	rdb := l.OwnClient(256*spareConnections, func(t *Tuning) {
		t.ConnMaxIdleTime, t.MaxIdleConns = spareMaxIdleTime, spareIdle
	})
	if rdb == nil {
		return nil
	}
	return &ownClient{UniversalClient: rdb, made: time.Now()}
}

// own is the client of our own connections, nil where there can be none, or none any more. It is to be left after the
// call.
func (l *Link) own() *ownClient {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	if l.spare == nil {
		l.spare = l.newSpare()
	}
	if l.spare != nil {
		l.spare.calls++
	}
	return l.spare
}

// leave ends a call on our own connections, and them too if others have taken their place and it was their last call.
func (l *Link) leave(one *ownClient) {
	l.mu.Lock()
	one.calls--
	over := one.retired && one.calls == 0 && !l.closed
	if over {
		delete(l.retired, one)
	}
	l.mu.Unlock()
	if over {
		_ = one.Close()
	}
}

// renew has our own connections replaced, for a call that follows one without an answer, and returns what is closed when
// that has ended; nil where there is nothing to wait for. Where one connection has died without a word, ours that have been
// idle may have, and each would cost a call its patience. Fresh ones take their place once one has answered; where none
// does, as with a server that has no room for more or lets us in no more, those that are there stay.
func (l *Link) renew() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.spare == nil || !l.doubtful(l.spare) || time.Since(l.unrenewed) < longDialWait {
		return nil
	}
	if l.renewing == nil {
		done := make(chan struct{})
		l.renewing = done
		l.pings.Go(func() { l.replace(done) })
	}
	return l.renewing
}

// underWay is what renew has begun, nil where nothing is.
func (l *Link) underWay() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.renewing
}

// doubtful tells connections of our own that may be dead, if a call had no answer for a second: not those that were made
// since. Those of a Cluster lead to each of its nodes, of which it may be one that is silent: they are replaced less often.
func (l *Link) doubtful(one *ownClient) bool {
	if _, single := l.rdb.(*redis.Client); !single {
		return time.Since(one.made) >= spareMaxIdleTime // how many are idle is not told without a call, at times
	}
	return time.Since(one.made) >= silence && one.PoolStats().IdleConns > 0
}

// replace puts fresh connections in the place of our own if one of them answers, and says when it has ended.
func (l *Link) replace(done chan struct{}) {
	fresh := l.tried()
	l.mu.Lock()
	old := l.spare
	l.renewing = nil
	close(done)
	if fresh == nil {
		l.unrenewed = time.Now()
	}
	if fresh == nil || l.closed {
		old = fresh // of no use
	} else {
		l.spare = fresh
		if old != nil && old.calls > 0 {
			old.retired = true
			if l.retired == nil {
				l.retired = map[*ownClient]struct{}{}
			}
			l.retired[old] = struct{}{}
			old = nil
		}
	}
	l.mu.Unlock()
	if old != nil {
		_ = old.Close()
	}
}

// tried makes a client of our own connections and asks it for the time; nil where that had no answer, or dials fail
// anyway.
func (l *Link) tried() *ownClient {
	if g := l.gateFor(spareConnections); g != nil && g.shut() {
		return nil
	}
	one := l.newSpare()
	if one == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(l.ctx, renewWithin)
	defer cancel()
	over := context.AfterFunc(ctx, func() { _ = one.Close() }) // a read does not heed ctx
	err := one.Process(ctx, once{redis.NewCmd(ctx, "time")})
	if !over() || err != nil { // which shuts no gate: those that are there may work
		_ = one.Close()
		return nil
	}
	return one
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
