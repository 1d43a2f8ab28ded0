package script

import (
	"context"
	"errors"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// failoverAddr is the address in the options of a client that asks Sentinels where to dial.
const failoverAddr = "FailoverClient"

// lookGap is how far apart looks are at least.
const lookGap = 100 * time.Millisecond

// A trail keeps connections of our own on the server that a user's client is on. A client of Sentinels hears of a new
// primary and leaves the old one; copies of it are not told, and the old one, cut off from the Sentinels or awake again,
// may go on answering: that leases are extended which the new one gives to others, or that ours are lost. So when the
// client has dropped connections or dialled, we dial too, as it does, and end ours that lead elsewhere.
type trail struct {
	user *redis.Client
	dial func(ctx context.Context, network, addr string) (net.Conn, error)

	mu      sync.Mutex
	to      string // where the last dial has led
	ours    map[*trailed]struct{}
	looking bool
	next    time.Time // not before this
	again   bool      // the last look failed
	dialled uint32    // by the client, as known at the last look
	open    uint32
}

// newTrail is nil for a client that is no client of Sentinels: its address leads where it leads.
func newTrail(rdb redis.UniversalClient) *trail {
	c, ok := rdb.(*redis.Client)
	if !ok || c == nil || c.Options().Addr != failoverAddr || c.Options().Dialer == nil {
		return nil
	}
	return &trail{user: c, dial: c.Options().Dialer, ours: map[*trailed]struct{}{}}
}

// own dials a connection of ours.
func (t *trail) own(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := t.dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	one := &trailed{Conn: conn, of: t, to: conn.RemoteAddr().String()}
	var old []*trailed
	t.mu.Lock()
	t.to = one.to
	t.ours[one] = struct{}{}
	for other := range t.ours {
		if other.to != t.to {
			old = append(old, other)
		}
	}
	t.mu.Unlock()
	for _, other := range old {
		_ = other.Close()
	}
	if raw, ok := conn.(syscall.Conn); ok {
		return &trailedRaw{one, raw}, nil // the client looks through it whether the other end has closed
	}
	return one, nil
}

// due reports whether it is time to look; who is told so has to call look.
func (t *trail) due(now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.ours) == 0 || t.looking || now.Before(t.next) {
		return false
	}
	pool := t.user.PoolStats()
	changed := t.again || pool.Misses != t.dialled || pool.TotalConns < t.open
	t.dialled, t.open = pool.Misses, pool.TotalConns
	if changed {
		t.looking, t.next = true, now.Add(lookGap)
	}
	return changed
}

// look dials once, which ends ours that lead elsewhere.
func (t *trail) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, t.user.Options().DialTimeout)
	defer cancel()
	conn, err := t.own(ctx, "tcp", failoverAddr)
	if err == nil {
		_ = conn.Close()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.looking, t.again = false, err != nil
}

// A trailed connection is one of ours.
type trailed struct {
	net.Conn
	of *trail
	to string
}

func (c *trailed) Close() error {
	c.of.mu.Lock()
	delete(c.of.ours, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

type trailedRaw struct {
	*trailed
	syscall.Conn
}

// Reload has a client of a Cluster ask who has which slots, if the error of a call says that the node it knows may be gone.
// By itself the client asks when a node sends it elsewhere, which a dead one does not, and once a minute.
func Reload(rdb redis.UniversalClient, err error) {
	cluster, ok := rdb.(*redis.ClusterClient)
	if !ok || err == nil || errors.Is(err, context.Canceled) || errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) {
		return
	}
	if what, _ := classify(err); what == unknown || isDial(err) || redis.IsClusterDownError(err) {
		cluster.ReloadState(context.Background()) // at most five times a second, in the background
	}
}
