package lease

import (
	"context"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/keys"
)

func TestEveryMistakeInAStoresOptionsIsReported(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{})
	t.Cleanup(func() { _ = rdb.Close() })
	_, err := NewStore(nil, "a b", &StoreOptions{Prefix: "x"})
	require.ErrorContains(t, err, "client is nil")
	require.ErrorContains(t, err, "queue name")
	_, err = NewStore(rdb, "q", &StoreOptions{Prefix: "{x}", Holder: "a\nb"})
	require.ErrorContains(t, err, "prefix")
	require.ErrorContains(t, err, "holder")
	_, err = NewStore(rdb, "q", &StoreOptions{Partition: -1})
	require.ErrorContains(t, err, "partition")
}

func TestHoldersAreReadableNames(t *testing.T) {
	t.Parallel()
	for holder, good := range map[string]bool{
		"host/1": true, strings.Repeat("x", 64): true, "größe": true,
		"": false, strings.Repeat("x", 65): false, "a\tb": false, "\xff": false, "a\x7f": false,
	} {
		assert.Equal(t, good, ValidateHolder(holder) == nil, "%q", holder)
	}
	assert.NoError(t, ValidateHolder(DefaultHolder()))
}

func TestAStoreKnowsWhatItWasMadeWith(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{})
	t.Cleanup(func() { _ = rdb.Close() })
	s, err := NewStore(rdb, "orders", nil)
	require.NoError(t, err)
	assert.Equal(t, "orders", s.Queue())
	assert.Same(t, rdb, s.Client())
	assert.NoError(t, s.Close(context.Background()), "without any I/O")
}

func TestAfterCloseNothingIsWrittenThatBelongsToASession(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		s := b.another(t, nil)
		takenFrom := func() Lease { b.put(t, "a"); return takeFrom(t, s, 1)[0] }
		l := takenFrom()
		require.NoError(t, s.Close(t.Context()))
		before := b.dump(t)
		_, err := s.Enqueue(t.Context(), []Item{{ID: "x", Record: []byte("r")}})
		assert.ErrorIs(t, err, ErrClosed)
		_, err = s.Claim(t.Context(), 1, nil)
		assert.ErrorIs(t, err, ErrClosed)
		_, err = s.Settle(t.Context(), []Verdict{verdict(Ack, l)})
		assert.ErrorIs(t, err, ErrClosed)
		_, err = s.Cancel(t.Context(), []string{"a"})
		assert.ErrorIs(t, err, ErrClosed)
		_, err = s.Redrive(t.Context(), []string{"a"})
		assert.ErrorIs(t, err, ErrClosed)
		_, err = s.PurgeNext(t.Context(), Due, &Cursor{}, 1)
		assert.ErrorIs(t, err, ErrClosed)
		assert.Equal(t, before, b.dump(t), "and what was held stays leased")
		extended, err := s.Extend(t.Context(), 0, []Held{held(l)})
		require.NoError(t, err, "what is safe to run twice needs no session")
		assert.NoError(t, extended.Results[0])
	})
}

func TestQueuesAreRegisteredByName(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		require.NoError(t, b.Register(t.Context()))
		require.NoError(t, b.Register(t.Context()))
		require.NoError(t, b.rdb.SAdd(t.Context(), keys.Registry(keys.DefaultPrefix), "not a {name}").Err())
		got, err := Queues(t.Context(), b.rdb, keys.DefaultPrefix)
		require.NoError(t, err)
		assert.Contains(t, got, b.queue)
		assert.NotContains(t, got, "not a {name}")
		require.NoError(t, b.rdb.SRem(t.Context(), keys.Registry(keys.DefaultPrefix), "not a {name}", b.queue).Err())
	})
}

func TestPartitionsShareNoKey(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		second, err := NewStore(b.rdb, b.queue, &StoreOptions{Partition: 1})
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, second.Close(context.Background())) })
		b.put(t, "a")
		got, err := second.Claim(t.Context(), 1, nil)
		require.NoError(t, err)
		assert.Empty(t, got.Jobs)
		results, err := second.Enqueue(t.Context(), []Item{{ID: "a", Record: []byte("other")}})
		require.NoError(t, err)
		assert.NoError(t, results[0])
		assert.Equal(t, string(record("a")), string(b.look(t, "a").Record))
	})
}

func TestScriptsAreNumberedWhereALostReplyCouldDoHarm(t *testing.T) {
	t.Parallel()
	numbered := map[string]bool{}
	for _, s := range Scripts() {
		if s.Numbered() {
			numbered[s.Name] = true
		}
	}
	assert.Equal(t, map[string]bool{"enqueue": true, "claim": true, "settle": true, "cancel": true, "redrive": true, "purge": true, "reschedule": true, "bury": true, "edit": true, "import": true, "delete": true, "pause": true, "settle+claim": true}, numbered)
}

func TestAClientThatIsNilOrWaitsWithoutEndIsRefused(t *testing.T) {
	t.Parallel()
	const nowhere = "127.0.0.1:1"
	closed := func(rdb redis.UniversalClient) redis.UniversalClient {
		t.Cleanup(func() { _ = rdb.Close() })
		return rdb
	}
	for _, rdb := range []redis.UniversalClient{nil, (*redis.Client)(nil), (*redis.ClusterClient)(nil)} {
		_, err := NewStore(rdb, "q", nil)
		require.ErrorContains(t, err, "client is nil: want one made by redis.NewClient")
	}
	for _, rdb := range []redis.UniversalClient{
		closed(redis.NewClient(&redis.Options{Addr: nowhere, ReadTimeout: -1})),
		closed(redis.NewClient(&redis.Options{Addr: nowhere, ReadTimeout: -2})),
		closed(redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{nowhere}, ReadTimeout: -1})),
	} {
		_, err := NewStore(rdb, "q", nil)
		require.ErrorContains(t, err, "ReadTimeout is switched off: want one, as the default of 3s")
	}
	require.NoError(t, ValidateClient(closed(redis.NewClient(&redis.Options{Addr: nowhere}))))
}
