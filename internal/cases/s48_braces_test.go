package cases

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/internal/redisproc"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/internal/wire"
	"github.com/leaseq/leaseq/lease"
	"github.com/leaseq/leaseq/reliable"
)

func TestS48_NamesThatWouldBreakTheSlotAreRefusedAtConstruction(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // nobody answers there, and nobody is asked
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	for _, bad := range []string{"{q}", "a{b}c", "{}", "}{", "q{", "q}", "{", "q#1", "#", "a b", "a\nb", "a\x00", "\xff", "ü", "*", strings.Repeat("x", 129)} {
		_, err := reliable.New(rdb, bad, nil)
		require.ErrorContains(t, err, "queue name", "%q", bad)
		require.Regexp(t, `only A-Z a-z 0-9 \. _ : / - are allowed|at most 128`, err.Error(), "%q", bad)
		_, err = reliable.New(rdb, "q", &reliable.QueueOptions{Prefix: bad})
		require.ErrorContains(t, err, "prefix", "%q", bad)
		_, err = lease.NewStore(rdb, bad, nil)
		require.Error(t, err, "%q", bad)
		_, err = lease.NewStore(rdb, "q", &lease.StoreOptions{Prefix: bad})
		require.Error(t, err, "%q", bad)
	}
	_, err := reliable.New(rdb, "", nil)
	require.ErrorContains(t, err, "queue name is empty")
	q, err := reliable.New(rdb, "q", &reliable.QueueOptions{Prefix: ""}) // documented: the default prefix
	require.NoError(t, err)
	closeBounded(t, q.Close)
}

// Names that are allowed, and could be taken for a part of a key.
var (
	oddNames    = []string{":", "::", "/", "..", "-", "_", "0", "queues", "due", "v1", "leaseq", "leaseq:v1", "a:b/c.d_e-f", strings.Repeat("x", 128)}
	oddPrefixes = []string{"leaseq", ":", "leaseq:v1", "v1:queues", "a/b.c", strings.Repeat("p", 128)}
	bracedIDs   = []string{"{", "}", "{}", "}{", "{a}", "a{b}c", "{a}{b}", "#", "q#1", "{q#1}", "}:due", "guard:{x}", "a b", "\u00fc{\u20ac}", "{" + strings.Repeat("}", 255)}
)

// A node of a Cluster that owns all slots checks every command's keys, as those of a larger one do. With several nodes
// the case belongs to the tests of moving slots.
func TestS48_OddNamesAndBracedIDsLiveTheirWholeLifeInOneSlot(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t, &redisproc.Options{Args: []string{"--cluster-enabled", "yes"}})
	node := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { require.NoError(t, node.Close()) })
	require.NoError(t, node.ClusterAddSlotsRange(t.Context(), 0, 16383).Err())
	require.Eventually(t, func() bool {
		info, err := node.ClusterInfo(t.Context()).Result()
		return err == nil && strings.HasPrefix(info, "cluster_state:ok")
	}, 30*time.Second, 20*time.Millisecond)
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{server.Addr()}})
	t.Cleanup(func() { require.NoError(t, cluster.Close()) })

	owner := map[string]string{}
	for i, name := range oddNames {
		prefix := oddPrefixes[i%len(oddPrefixes)]
		for _, one := range keysInOneSlot(t, node, prefix, name) {
			require.Empty(t, owner[one], "%s is a key of %s and of %s", one, owner[one], name)
			owner[one] = name
		}
	}
	t.Run("lives", func(t *testing.T) {
		for i, name := range oddNames {
			prefix := oddPrefixes[i%len(oddPrefixes)]
			t.Run(strconv.Itoa(i), func(t *testing.T) {
				t.Parallel()
				wholeLife(t, cluster, prefix, name)
				redistest.CheckQueue(t, node, prefix, name)
			})
		}
	})
	for key := range owner {
		kind, err := node.Type(t.Context(), key).Result()
		require.NoError(t, err)
		require.Contains(t, []string{"none", "string", "hash", "list"}, kind, "%s: a place that is not empty", key)
	}
}

// keysInOneSlot asks the server for the slots of a queue's keys.
func keysInOneSlot(t *testing.T, node *redis.Client, prefix, name string) []string {
	p, err := keys.New(prefix, name, 0)
	require.NoError(t, err)
	want, err := node.ClusterKeySlot(t.Context(), p.All()[0]).Result()
	require.NoError(t, err)
	for _, key := range p.All() {
		got, err := node.ClusterKeySlot(t.Context(), key).Result()
		require.NoError(t, err)
		require.Equal(t, want, got, key)
	}
	return p.All()
}

// wholeLife takes jobs with odd IDs through everything that can happen to them.
func wholeLife(t *testing.T, rdb redis.UniversalClient, prefix, name string) {
	ctx := t.Context()
	q, err := reliable.New(rdb, name, &reliable.QueueOptions{Prefix: prefix, Lease: 100 * time.Millisecond, MaxRetries: limitOf(1)})
	require.NoError(t, err)
	defer closeBounded(t, q.Close)
	store, err := lease.NewStore(rdb, name, &lease.StoreOptions{Prefix: prefix, Stub: wire.Stub()})
	require.NoError(t, err)
	defer closeBounded(t, store.Close)
	n := len(bracedIDs)
	var items []reliable.Item
	for _, id := range bracedIDs {
		items = append(items, reliable.Item{Kind: "case", ID: id, Payload: []byte(id)})
	}
	results, err := q.EnqueueMany(ctx, items)
	require.NoError(t, err)
	for _, one := range results {
		require.NoError(t, one.Err)
	}
	again, err := q.EnqueueMany(ctx, items)
	require.NoError(t, err)
	for _, one := range again {
		require.ErrorIs(t, one.Err, reliable.ErrDuplicate)
	}
	claim := func(attempt int) []*reliable.Job {
		batch, err := q.Claim(ctx, 100, &reliable.ClaimOptions{Wait: 10 * time.Second})
		require.NoError(t, err)
		require.Len(t, batch.Jobs, n)
		for _, job := range batch.Jobs {
			require.Equal(t, job.ID, string(job.Payload))
			require.Equal(t, attempt, job.Attempt)
		}
		return batch.Jobs
	}
	for _, job := range claim(1) {
		require.NoError(t, job.Extend(ctx, 0))
		require.NoError(t, job.Nack(ctx, reliable.RetryAfter(0, errors.New("{failed}"))))
	}
	claim(2)
	moved := 0
	require.Eventually(t, func() bool {
		got, err := store.Expire(ctx, lease.MaxBatch, true)
		moved += got.ToDue
		return err == nil && moved == n
	}, 20*time.Second, 5*time.Millisecond)
	for _, job := range claim(3) {
		require.NoError(t, job.Bury(ctx, fmt.Errorf("buried {%s}", job.ID)))
	}
	redrives, err := q.Redrive(ctx, bracedIDs[:n/2]...)
	require.NoError(t, err)
	require.NoError(t, errors.Join(redrives...))
	var cursor reliable.Cursor
	rest, err := q.RedriveNext(ctx, &cursor, 100)
	require.NoError(t, err)
	require.Equal(t, n-n/2, rest)
	infos, err := q.List(ctx, reliable.Due, 100, nil)
	require.NoError(t, err)
	require.Len(t, infos.Jobs, n)
	endOfLife(t, q, n)
}

// endOfLife ends the jobs in each of the ways that leave nothing: purge, cancel, and ack by a Consumer.
func endOfLife(t *testing.T, q *reliable.Queue, n int) {
	ctx := t.Context()
	purged, err := q.Purge(ctx, reliable.Due, bracedIDs[0])
	require.NoError(t, errors.Join(err, purged[0]))
	removed, err := q.Cancel(ctx, bracedIDs[1])
	require.NoError(t, errors.Join(err, removed[0].Err))
	stop := consumeWith(t, q, reliable.HandlerFunc(func(context.Context, *reliable.Job) error { return nil }), nil)
	defer stop()
	require.Eventually(t, func() bool {
		stats, err := q.Stats(ctx)
		return err == nil && stats.Counters["acked"] == int64(n-2) && stats.Records == 0
	}, 30*time.Second, 10*time.Millisecond)
}
