package lease

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/internal/netfault"
	"github.com/leaseq/leaseq/internal/redistest"
)

// records lists the keys of the records of jobs, after making them.
func (b *bench) records(t testing.TB, ids ...string) []string {
	t.Helper()
	var all []string
	for _, id := range ids {
		all = append(all, b.keys.Once(id))
		b.begin(t, b.keys.Once(id), "1:s:1")
	}
	return all
}

func (b *bench) exist(t testing.TB, records ...string) int64 {
	t.Helper()
	n, err := b.rdb.Exists(context.Background(), records...).Result()
	require.NoError(t, err)
	return n
}

func TestACancelDeletesTheRecordOfAJobThatItRemoves(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.spread(t)
		ids := []string{"due", "processing", "dead", "done", "nowhere"}
		all := b.records(t, ids...)
		b.put(t, "kept")
		b.records(t, "kept")
		got, err := b.Cancel(t.Context(), append(ids, "kept", "due"), append(all, "", all[0])...)
		require.NoError(t, err)
		assert.Equal(t, []Removed{
			{Cancelled: true}, {Cancelling: true}, {Cancelled: true}, {Cancelled: true}, {Err: ErrGone}, {Cancelled: true}, {Err: ErrGone},
		}, got)
		assert.Zero(t, b.exist(t, all[0], all[2], all[3]))
		for _, key := range []string{all[1], all[4], b.keys.Once("kept")} {
			assert.Equal(t, started("1:s:1"), b.kept(t, key), "nothing was removed by this call, or no record was named")
			assert.Positive(t, b.ttl(t, key))
		}
	})
}

func TestAPurgeByIDDeletesTheRecordOfAJobThatItRemoves(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.spread(t)
		ids := []string{"due", "processing", "dead", "nowhere"}
		all := b.records(t, ids...)
		for i, place := range []Place{Due, Dead} {
			got, err := b.Purge(t.Context(), place, ids, all...)
			require.NoError(t, err)
			for j := range got {
				assert.Equal(t, j == 2*i, got[j] == nil)
			}
			assert.EqualValues(t, 3-i, b.exist(t, all...), "only that of the job in %s", place)
		}
		b.put(t, "kept")
		b.records(t, "kept")
		got, err := b.Purge(t.Context(), Due, []string{"kept"})
		require.NoError(t, err)
		assert.Equal(t, []error{nil}, got)
		assert.EqualValues(t, 1, b.exist(t, b.keys.Once("kept")), "no record was named")
	})
}

func TestRecordsToDeleteThatAreNotFitAreRefusedWithNothingDone(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.put(t, "a", "b")
		before := b.dump(t)
		for want, records := range map[string][]string{
			"1 records of 2 jobs":   {b.keys.Once("a")},
			"no idempotency record": {b.keys.Once("a"), b.key("jobs")},
			"does not begin":        {"leaseq:v1:{x}:once:a", ""},
		} {
			_, err := b.Cancel(t.Context(), []string{"a", "b"}, records...)
			require.ErrorContains(t, err, want)
			_, err = b.Purge(t.Context(), Due, []string{"a", "b"}, records...)
			require.ErrorContains(t, err, want)
		}
		assert.Equal(t, before, b.dump(t))
	})
}

// The cancel ran, its job and record are made anew, and then the repeat of the cancel arrives; so with a settle.
func TestARepeatTouchesNoRecordThatWasMadeSince(t *testing.T) {
	t.Parallel()
	b, proxy := behindProxy(t, nil)
	direct := b.another(t, b.rdb)
	b.put(t, "a")
	key := b.records(t, "a")[0]
	seen := intercept(proxy, cancelScript, func(n int64) netfault.Action {
		if n == 1 {
			return netfault.DropReply
		}
		_, err := direct.Enqueue(context.Background(), []Item{{ID: "a", Record: record("a")}})
		assert.NoError(t, err)
		b.begin(t, key, "2:s:1")
		return netfault.Pass
	})
	got, err := b.Cancel(t.Context(), []string{"a"}, key)
	require.NoError(t, err)
	assert.Equal(t, []Removed{{Cancelled: true}}, got, "the first answer")
	assert.EqualValues(t, 2, seen.Load())
	assert.Equal(t, started("2:s:1"), b.kept(t, key))

	for _, op := range allOps {
		proxy.Decide(nil)
		require.NoError(t, b.rdb.Del(t.Context(), b.key("due"), b.key("jobs"), key).Err())
		b.put(t, "a")
		l := b.take(t, 1)[0]
		a := b.begun(t, l)
		seen = intercept(proxy, settleScript, func(n int64) netfault.Action {
			if n == 1 {
				return netfault.DropReply
			}
			assert.Equal(t, finished(l.Token), b.kept(t, key), "the first try has done it")
			b.begin(t, key, l.Token) // the same owner, so that only the number keeps the repeat from it
			return netfault.Pass
		})
		require.NoError(t, b.settle(t, with(verdict(op, l), a))[0].Err)
		assert.EqualValues(t, 2, seen.Load())
		assert.Equal(t, "s", b.kept(t, key)["e:x"], "the repeat did nothing")
		_, err := direct.Cancel(t.Context(), []string{"a"}, key)
		require.NoError(t, err)
	}
}

func TestARefusedAckIsToldAgainToARepeatAndByTheSeal(t *testing.T) {
	t.Parallel()
	b, proxy := behindProxy(t, nil)
	b.put(t, "a")
	l := b.take(t, 1)[0]
	a := b.begun(t, l)
	b.begin(t, a.Key, "somebody")
	before := b.dump(t)
	intercept(proxy, settleScript, first(2, netfault.DropReply))
	require.ErrorIs(t, b.settle(t, with(verdict(Ack, l), a))[0].Err, ErrRecord)
	assert.Equal(t, 1, b.count(t, "refused_records"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	intercept(proxy, settleScript, func(int64) netfault.Action { cancel(); return netfault.DropReply })
	got, err := b.Settle(ctx, []Verdict{with(verdict(Ack, l), a)})
	require.Error(t, err)
	require.ErrorIs(t, resolved(t, got[0].Err), ErrRecord)
	assert.Equal(t, before, b.dump(t))
	assert.Equal(t, 2, b.count(t, "refused_records"))
}

func TestCallsWithRecordsRunToTheirEndWhenMemoryIsFull(t *testing.T) {
	t.Parallel()
	b, fill, free := onFullServer(t)
	b.put(t, names("j", 7)...)
	l := b.take(t, 5)
	all := b.records(t, "j0005", "j0006")
	attached := make([]*Attached, len(l))
	for i := range l {
		attached[i] = b.begun(t, l[i])
	}
	b.begin(t, attached[4].Key, "somebody")
	fill()
	got, err := b.Extend(t.Context(), 0, []Held{heldWith(l[0], riding(b, l[0]))})
	require.NoError(t, err)
	assert.Equal(t, []error{nil}, got.Results)
	removed, err := b.Cancel(t.Context(), []string{l[3].ID, "j0005"}, "", all[0])
	require.NoError(t, err)
	assert.Equal(t, []Removed{{Cancelling: true}, {Cancelled: true}}, removed)
	purged, err := b.Purge(t.Context(), Due, []string{"j0006"}, all[1])
	require.NoError(t, err)
	assert.Equal(t, []error{nil}, purged)
	ends := b.settle(t, with(verdict(Ack, l[0]), attached[0]), with(verdict(Nack, l[1]), attached[1]), with(verdict(Bury, l[2]), attached[2]),
		with(verdict(Release, l[3]), attached[3]), with(verdict(Ack, l[4]), attached[4]))
	assert.Equal(t, []Settled{{}, {Place: Due}, {Place: Dead}, {Cancelled: true}}, ends[:4])
	require.ErrorIs(t, ends[4].Err, ErrRecord)
	free()
	for i := range 3 {
		want := finished(l[i].Token)
		if i == 0 {
			want["until"] = b.kept(t, attached[0].Key)["until"]
			assert.NotEqual(t, "7", want["until"])
		}
		assert.Equal(t, want, b.kept(t, attached[i].Key))
	}
	assert.Zero(t, b.exist(t, all[0], all[1], attached[3].Key))
	assert.Equal(t, started("somebody"), b.kept(t, attached[4].Key))
}

func TestRecordsLieInTheirJobsSlotOfACluster(t *testing.T) {
	t.Parallel()
	var addrs []string
	for _, node := range redistest.Cluster(t, 3, nil) {
		addrs = append(addrs, node.Addr())
	}
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	t.Cleanup(func() { _ = rdb.Close() })
	for partition := range 6 {
		s, err := NewStore(rdb, "spread", &StoreOptions{Partition: partition})
		require.NoError(t, err)
		_, err = s.Enqueue(t.Context(), []Item{{ID: "a}{", Record: record("a")}, {ID: "b", Record: record("b")}})
		require.NoError(t, err)
		leases := takeFrom(t, s, 2)
		var verdicts []Verdict
		for i, key := range []string{s.keys.Once(leases[0].ID), s.keys.Guard("{x}")} {
			require.NoError(t, rdb.HSet(t.Context(), key, "owner", leases[i].Token).Err())
			a := &Attached{Key: key, Owner: leases[i].Token, Expiry: "until", Fields: []string{"x", "1"}, TTL: patience}
			got, err := s.Extend(t.Context(), 0, []Held{heldWith(leases[i], a)})
			require.NoError(t, err)
			require.NoError(t, got.Results[0])
			verdicts = append(verdicts, with(verdict(Ack, leases[i]), a))
		}
		got, err := s.Settle(t.Context(), verdicts)
		require.NoError(t, err)
		assert.Equal(t, []Settled{{}, {}}, got)
		_, err = s.Enqueue(t.Context(), []Item{{ID: "a}{", Record: record("a")}})
		require.NoError(t, err)
		_, err = s.Cancel(t.Context(), []string{"a}{"}, s.keys.Once("a}{"))
		require.NoError(t, err)
		assert.Zero(t, rdb.Exists(t.Context(), s.keys.Once("a}{")).Val())

		other, err := keys.New(keys.DefaultPrefix, "spread", partition+1)
		require.NoError(t, err)
		_, err = s.Cancel(t.Context(), []string{"b"}, other.Once("b"))
		require.ErrorContains(t, err, "does not begin with", "the record of another partition is in another slot")
		require.NoError(t, s.Close(t.Context()))
	}
	redistest.CheckQueue(t, rdb, keys.DefaultPrefix, "spread")
}
