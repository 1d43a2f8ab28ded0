package main

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/idempotency"
	"github.com/leaseq/leaseq/internal/redisproc"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/lease"
	"github.com/leaseq/leaseq/reliable"
)

const aclPassword = "hunter2"

// grant makes a user with exactly the documented line, and what is added to it.
func grant(t *testing.T, admin *redis.Client, user string, more ...string) {
	t.Helper()
	line := aclLines(t, "docs/reaper.md")[user]
	require.NotEmpty(t, line, "docs/reaper.md has no line for %s", user)
	args := []any{"acl", "setuser"}
	for _, word := range append(line, more...) {
		args = append(args, strings.ReplaceAll(word, "CHANGE-ME", aclPassword))
	}
	require.NoError(t, admin.Do(t.Context(), args...).Err())
}

// as is a client of a program that works as a documented user.
func as(t *testing.T, server *redisproc.Server, user string) *redis.Client {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{
		Addr: server.Addr(), Username: user, Password: aclPassword, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
	return rdb
}

// nothingDenied asserts that the server has refused nobody anything.
func nothingDenied(t *testing.T, admin *redis.Client) {
	t.Helper()
	entries, err := admin.Do(t.Context(), "acl", "log").Slice()
	require.NoError(t, err)
	assert.Empty(t, entries)
}

func TestTheSidecarWorksAsTheDocumentedUser(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t, nil)
	admin := redistest.AdminClient(t, server, nil)
	grant(t, admin, "leaseq-sidecar")
	p, _ := mustSweep(t, admin, "leaseq", "--redis", "redis://leaseq-sidecar@"+server.Addr(), "--password-file", writeFile(t, aclPassword+"\n"))
	endsWell(t, p)
	assert.NotContains(t, p.err.String(), "level=WARN")
	code, _, errOut := invoke(t, nil, "queues", "--redis", "redis://leaseq-sidecar:"+aclPassword+"@"+server.Addr())
	assert.Zero(t, code, errOut)
	nothingDenied(t, admin)
}

func TestTheSidecarOfOneQueueWorksAsAUserOfThatQueue(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t, nil)
	admin := redistest.AdminClient(t, server, nil)
	grant(t, admin, "leaseq-sidecar", "resetkeys", "~leaseq:v1:{orders}:*", "~leaseq:v1:queues")
	orders, mail := newStore(t, admin, "leaseq", "orders", 300*time.Millisecond), newStore(t, admin, "leaseq", "mail", 300*time.Millisecond)
	url := "redis://leaseq-sidecar:" + aclPassword + "@" + server.Addr()
	p := launch(t, nil, "run", "--redis", url, orders.Queue())
	sweepsAgain(t, p, orders)
	endsWell(t, p)
	nothingDenied(t, admin)
	code, out, errOut := invoke(t, nil, "stats", "--redis", url)
	assert.Equal(t, exitRedis, code)
	assert.Contains(t, errOut, "queue "+mail.Queue())
	assert.Contains(t, errOut, "NOPERM")
	assert.Contains(t, out, orders.Queue())
}

func TestTheSidecarWorksWhereInfoIsForbiddenAndSaysThatItCouldNotCheck(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t, nil)
	admin := redistest.AdminClient(t, server, nil)
	grant(t, admin, "leaseq-sidecar", "-info")
	store := newStore(t, admin, "leaseq", redistest.Queue(t), 300*time.Millisecond)
	p := launch(t, nil, "run", "--redis", "redis://leaseq-sidecar:"+aclPassword+"@"+server.Addr())
	p.err.await(t, "level=WARN", "could not check maxmemory-policy", "NOPERM")
	sweepsAgain(t, p, store)
	endsWell(t, p)
	assert.Equal(t, 1, strings.Count(p.err.String(), "level=WARN"))
}

func TestACommandThatTheACLForbidsIsNamedWithTheDocumentedRights(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t, nil)
	admin := redistest.AdminClient(t, server, nil)
	store := newStore(t, admin, "leaseq", redistest.Queue(t), 300*time.Millisecond)
	for missing, want := range map[string]string{"-smembers": "'smembers'", "-evalsha": "'evalsha'", "-zcard": "can't run this command", "resetkeys": "keys"} {
		grant(t, admin, "leaseq-sidecar", missing)
		code, _, errOut := invoke(t, nil, "stats", "--redis", "redis://leaseq-sidecar:"+aclPassword+"@"+server.Addr())
		assert.Equal(t, exitRedis, code, missing)
		for _, part := range []string{"forbids this user", want, "~leaseq:v1:* " + sidecarRules, "ACL LOG"} {
			assert.Contains(t, errOut, part, missing)
		}
		assert.NotContains(t, errOut, aclPassword)
	}

	// An ACL that is tightened under a sidecar does not end it; it goes on when that is mended.
	grant(t, admin, "leaseq-sidecar")
	p := launch(t, nil, "run", "--redis", "redis://leaseq-sidecar:"+aclPassword+"@"+server.Addr())
	sweepsAgain(t, p, store)
	grant(t, admin, "leaseq-sidecar", "-evalsha")
	p.err.await(t, "somebody has to change something", "forbids this user", "'evalsha'", "advice=")
	grant(t, admin, "leaseq-sidecar")
	sweepsAgain(t, p, store)
	endsWell(t, p)
	assert.Equal(t, 1, strings.Count(p.err.String(), "somebody has to change something"))
}

// hasEffects needs every command that effects need: one that is refused, one that is done, and one done with the ack.
func hasEffects(ctx context.Context, job *reliable.Job) error {
	refused := func(context.Context) error { return idempotency.NotDone(errors.New("refused")) }
	if err := job.Once(ctx, "refused", refused); !errors.Is(err, idempotency.ErrNotDone) {
		return err
	}
	if err := job.Once(ctx, "first", func(context.Context) error { return nil }); err != nil {
		return err
	}
	return job.OnceAndAck(ctx, "second", func(context.Context) error { return nil })
}

func TestProducerAndConsumerWorkAsTheDocumentedUsers(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t, nil)
	admin := redistest.AdminClient(t, server, nil)
	grant(t, admin, "leaseq-producer")
	grant(t, admin, "leaseq-consumer")
	const length = time.Second
	producer, err := reliable.New(as(t, server, "leaseq-producer"), "orders", nil)
	require.NoError(t, err)
	worker, err := reliable.New(as(t, server, "leaseq-consumer"), "orders", &reliable.QueueOptions{Lease: length})
	require.NoError(t, err)
	var failures, releases atomic.Int64
	c, err := reliable.NewConsumer(worker, reliable.HandlerFunc(func(ctx context.Context, job *reliable.Job) error {
		switch job.Kind {
		case "has.effects":
			return hasEffects(ctx, job)
		case "fails.once":
			if failures.Add(1) == 1 {
				return reliable.RetryAfter(10*time.Millisecond, errors.New("once"))
			}
		case "gives.back":
			if releases.Add(1) == 1 {
				return reliable.Release(nil)
			}
		case "useless":
			return reliable.Discard(errors.New("never"))
		case "panics":
			panic("in a handler")
		case "longer.than.its.lease":
			timer := time.NewTimer(2 * length)
			defer timer.Stop()
			select {
			case <-ctx.Done():
			case <-timer.C:
			}
		}
		return nil
	}), &reliable.ConsumerOptions{Concurrency: 2})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()

	none := 0
	for _, kind := range []string{"works", "has.effects", "fails.once", "gives.back", "useless", "panics", "longer.than.its.lease"} {
		item := reliable.Item{Kind: kind, ID: kind, Payload: []byte("{}")}
		if kind == "panics" {
			item.MaxRetries = &none
		}
		_, err := producer.Enqueue(t.Context(), item)
		require.NoError(t, err, kind)
	}
	_, err = producer.Enqueue(t.Context(), reliable.Item{Kind: "works", ID: "longer.than.its.lease"})
	require.ErrorIs(t, err, reliable.ErrDuplicate)
	store := newStore(t, admin, "leaseq", "orders", length)
	require.Eventually(t, func() bool {
		stats, err := store.Stats(t.Context())
		return err == nil && stats.Counters["acked"] == 5 && stats.Dead == 2
	}, within, 10*time.Millisecond)
	stop()
	require.NoError(t, <-ended)
	require.NoError(t, worker.Close(t.Context()))
	require.NoError(t, producer.Close(t.Context()))
	stats, err := store.Stats(t.Context())
	require.NoError(t, err)
	assert.Zero(t, stats.Counters["expired"], "it was extended")
	nothingDenied(t, admin)
}

func TestAnOperatorWorksAsTheDocumentedUser(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t, nil)
	admin := redistest.AdminClient(t, server, nil)
	grant(t, admin, "leaseq-operator")
	store := newStore(t, admin, "leaseq", "orders", time.Minute)
	enqueue(t, store, "a", "b", "c", "d")
	for _, id := range []string{"b", "d"} {
		require.NoError(t, admin.HSet(t.Context(), "leaseq:v1:{orders}:once:"+id, "owner", "somebody").Err())
	}
	for _, job := range claim(t, store, 3) {
		settle(t, store, lease.Bury, &job)
	}
	q, err := reliable.New(as(t, server, "leaseq-operator"), "orders", nil)
	require.NoError(t, err)
	stats, err := q.Stats(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, 3, stats.Dead)
	dead, err := q.List(t.Context(), reliable.Dead, 10, nil)
	require.NoError(t, err)
	assert.Len(t, dead.Jobs, 3)
	_, err = q.Inspect(t.Context(), "a", "nobody")
	require.NoError(t, err)
	_, err = q.Redrive(t.Context(), "a")
	require.NoError(t, err)
	_, err = q.Purge(t.Context(), reliable.Dead, "b")
	require.NoError(t, err)
	_, err = q.Cancel(t.Context(), "d")
	require.NoError(t, err)
	records, err := admin.Keys(t.Context(), "*:once:*").Result()
	require.NoError(t, err)
	assert.Empty(t, records)
	var cursor reliable.Cursor
	n, err := q.RedriveNext(t.Context(), &cursor, 10)
	require.NoError(t, err)
	assert.Equal(t, 1, n)
	require.NoError(t, q.Close(t.Context()))
	url := "redis://leaseq-operator:" + aclPassword + "@" + server.Addr()
	lines := filepath.Join(t.TempDir(), "dead.jsonl")
	for _, args := range [][]string{
		{"list", "orders"}, {"reschedule", "orders", "c", "--delay", "1h"}, {"promote", "orders", "c"}, {"bury", "orders", "c", "--reason", "asked"},
		{"dead", "orders", "--summary"}, {"show", "orders", "c"}, {"edit", "orders", "c", "new"}, {"export", "orders", "--out", lines},
		{"purge", "orders", "--all", "--yes"}, {"import", "orders", lines}, {"edit", "orders", "c", "newer", "--redrive"},
		{"redrive", "orders", "--all", "--class", "discarded"}, {"cancel", "orders", "c"}, {"queues"}, {"stats"},
	} {
		code, _, errOut := invoke(t, nil, append(args, "--redis", url)...)
		require.Zero(t, code, "%v: %s", args, errOut)
	}
	code, _, errOut := invoke(t, nil, "queue", "delete", "orders", "--yes", "--wait", "0s", "--redis", "redis://leaseq-operator:"+aclPassword+"@"+server.Addr())
	assert.Zero(t, code, errOut)
	nothingDenied(t, admin)
}

func TestAGuardWorksAsTheDocumentedUser(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t, nil)
	admin := redistest.AdminClient(t, server, nil)
	grant(t, admin, "leaseq-guard")
	g, err := idempotency.New(as(t, server, "leaseq-guard"), "orders", &idempotency.Options{Lease: 300 * time.Millisecond})
	require.NoError(t, err)
	for range 2 {
		got, err := idempotency.Do(t.Context(), g, "done", func(context.Context) (int, error) { return 7, nil }, nil)
		require.NoError(t, err)
		assert.Equal(t, 7, got)
	}
	a, err := g.Begin(t.Context(), "kept", nil)
	require.NoError(t, err)
	first, err := admin.HGet(t.Context(), "leaseq:v1:{orders}:guard:kept", "until").Int64()
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		until, err := admin.HGet(t.Context(), "leaseq:v1:{orders}:guard:kept", "until").Int64()
		return err == nil && until > first
	}, within, 10*time.Millisecond, "its lease is moved on")
	_, err = g.Begin(t.Context(), "kept", nil)
	require.ErrorAs(t, err, new(*idempotency.InFlightError))
	require.NoError(t, a.Permit.Abort(t.Context()))
	require.NoError(t, g.Close(t.Context()))
	nothingDenied(t, admin)
}

func TestEnqueueWorksAsTheDocumentedProducer(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t, nil)
	admin := redistest.AdminClient(t, server, nil)
	grant(t, admin, "leaseq-producer")
	code, _, errOut := invoke(t, nil, "enqueue", "orders", "{}", "--kind", "order.close", "--redis", "redis://leaseq-producer:"+aclPassword+"@"+server.Addr())
	assert.Zero(t, code, errOut)
	claim(t, newStore(t, admin, "leaseq", "orders", time.Minute), 1)
	nothingDenied(t, admin)
}

func TestTheSidecarWorksWithAClusterAsTheDocumentedUser(t *testing.T) {
	t.Parallel()
	nodes := redistest.Cluster(t, 3, nil)
	for _, node := range nodes {
		grant(t, redistest.AdminClient(t, node, nil), "leaseq-sidecar", "+cluster|slots", "+command")
	}
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{nodes[0].Addr()}})
	t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
	p, _ := mustSweep(t, rdb, "leaseq", "--redis", "redis://leaseq-sidecar:"+aclPassword+"@"+nodes[0].Addr()+"?cluster=true")
	endsWell(t, p)
	for _, node := range nodes {
		nothingDenied(t, redistest.AdminClient(t, node, nil))
	}
}

func TestTheSidecarAsksSentinelsAsTheDocumentedUser(t *testing.T) {
	t.Parallel()
	w := redistest.Sentinels(t, nil)
	admin := redistest.AdminClient(t, w.Servers[0], nil)
	grant(t, admin, "leaseq-sidecar")
	for _, one := range w.Sentinels {
		sentinel := redistest.AdminClient(t, one, nil)
		grant(t, sentinel, "leaseq-watch")
	}
	url := "redis://leaseq-watch:" + aclPassword + "@" + w.Sentinels[0].Addr() + "?master_name=main&username=leaseq-sidecar&password=" + aclPassword
	p, _ := mustSweep(t, admin, "leaseq", "--redis", url)
	endsWell(t, p)
	nothingDenied(t, admin)
	for _, one := range w.Sentinels {
		nothingDenied(t, redistest.AdminClient(t, one, nil))
	}
}
