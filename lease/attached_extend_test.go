package lease

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// riding is what a guard attaches to its lease's beats.
func riding(b *bench, l Lease) *Attached {
	return &Attached{Key: b.keys.Once(l.ID), Owner: l.Token, Expiry: "until", TTL: 2 * time.Hour}
}

func heldWith(l Lease, a *Attached) Held { return Held{ID: l.ID, Token: l.Token, Attached: a} }

func TestARecordsEndMovesWithItsLease(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.put(t, "a", "b")
		l := b.take(t, 2)
		b.begun(t, l[0])
		for _, length := range []time.Duration{time.Minute, time.Hour, time.Second} { // the last one moves nothing back
			got, err := b.Extend(t.Context(), length, []Held{held(l[1]), heldWith(l[0], riding(b, l[0]))})
			require.NoError(t, err)
			assert.Equal(t, []error{nil, nil}, got.Results)
			want := started(l[0].Token)
			want["until"] = strconv.FormatInt(b.score(t, Processing, l[0].ID), 10)
			assert.Equal(t, want, b.kept(t, b.keys.Once(l[0].ID)), "to the millisecond")
			assert.Greater(t, b.ttl(t, b.keys.Once(l[0].ID)), time.Hour)
		}
		fields := &Attached{Key: b.keys.Once(l[0].ID), Owner: l[0].Token, Fields: []string{"beats", "1"}}
		_, err := b.ExtendOnce(t.Context(), 0, []Held{heldWith(l[0], fields)})
		require.NoError(t, err)
		assert.Equal(t, "1", b.kept(t, fields.Key)["beats"])
		assert.Len(t, b.kept(t, fields.Key), 4)
	})
}

func TestALeaseIsExtendedWhoeverOwnsItsRecord(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.put(t, "other", "gone", "string")
		l := b.take(t, 3)
		b.begin(t, b.keys.Once("other"), "somebody")
		require.NoError(t, b.rdb.Set(t.Context(), b.keys.Once("string"), "by hand", time.Hour).Err())
		before := b.dump(t)
		var holds []Held
		for i := range l {
			holds = append(holds, heldWith(l[i], riding(b, l[i])))
		}
		got, err := b.Extend(t.Context(), time.Hour, holds)
		require.NoError(t, err)
		assert.Equal(t, []error{nil, nil, nil}, got.Results)
		after := b.dump(t)
		assert.NotEqual(t, before[b.key("processing")], after[b.key("processing")])
		for _, key := range []string{"other", "gone", "string"} {
			assert.Equal(t, before[b.keys.Once(key)], after[b.keys.Once(key)], key)
		}
		assert.LessOrEqual(t, b.ttl(t, b.keys.Once("other")), time.Hour)
		require.NoError(t, b.rdb.Del(t.Context(), b.keys.Once("string")).Err())
	})
}

func TestAnExtendThatIsRefusedLeavesItsRecordAlone(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.put(t, "late", "cancelled")
		l := b.take(t, 2)
		for i := range l {
			b.begun(t, l[i])
		}
		b.expireAll(t, l[0])
		_, err := b.Cancel(t.Context(), []string{l[1].ID})
		require.NoError(t, err)
		before := b.dump(t)
		got, err := b.Extend(t.Context(), time.Hour, []Held{
			heldWith(l[0], riding(b, l[0])), heldWith(l[1], riding(b, l[1])), heldWith(Lease{ID: "none", Token: l[0].Token}, riding(b, l[0])),
		})
		require.NoError(t, err)
		assert.Equal(t, []error{&LostError{ID: l[0].ID, Place: Due}, ErrCancelled, ErrGone}, got.Results)
		assert.Equal(t, before, b.dump(t))
		assert.LessOrEqual(t, b.ttl(t, b.keys.Once(l[1].ID)), time.Hour)
	})
}

func TestAMemberThatIsMissingIsNotMadeForARecord(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.put(t, "a")
		l := b.take(t, 1)[0]
		b.begun(t, l)
		require.NoError(t, b.rdb.ZRem(t.Context(), b.key("processing"), "a").Err()) // by somebody's hand
		_, err := b.Extend(t.Context(), 0, []Held{heldWith(l, riding(b, l))})
		require.NoError(t, err)
		assert.Zero(t, b.rdb.ZCard(t.Context(), b.key("processing")).Val())
		assert.Equal(t, started(l.Token), b.kept(t, b.keys.Once("a")))
		require.NoError(t, b.rdb.ZAdd(t.Context(), b.key("processing"), redis.Z{Score: 1, Member: "a"}).Err())
	})
}

func TestBeatsCarryWhatIsAttachedAtTheMoment(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var redis pretender
		k, _ := keeperWith(t, redis.grants(), nil)
		h := k.Hold(t.Context(), leased("a", length))
		k.Hold(t.Context(), leased("b", length))
		fields := []string{"x", "1"}
		one := &Attached{Key: k.store.keys.Once("a"), Owner: "a", Fields: fields, Expiry: "until", TTL: time.Hour}
		two := &Attached{Key: k.store.keys.Guard("g"), Owner: "a", Expiry: "until"}
		var want []*Attached
		for _, a := range []*Attached{nil, one, two, nil} {
			require.NoError(t, h.Attach(a))
			want = append(want, a.clone())
			fields[1] = "2" // the caller's own again
			run(length / 3)
		}
		require.ErrorContains(t, h.Attach(&Attached{Key: "elsewhere", Owner: "a"}), "job a: the key of the attached record")
		var tooLarge *TooLargeError
		require.ErrorAs(t, h.Attach(&Attached{Key: one.Key, Owner: "a", Fields: []string{"x", string(make([]byte, 5000))}}), &tooLarge)
		run(length / 3)
		want = append(want, nil) // what was refused is not attached
		var got []*Attached
		for _, named := range redis.named {
			for _, one := range named {
				if one.ID == "a" {
					got = append(got, one.Attached)
				} else {
					assert.Nil(t, one.Attached)
				}
			}
		}
		assert.Equal(t, want, got)
	})
}

func TestAttachingIsSafeBesideBeats(t *testing.T) {
	t.Parallel()
	b := onRedis(t)
	b.publish(t, Policy{Lease: 100 * time.Millisecond})
	b.put(t, names("j", 8)...)
	leases := b.take(t, 8)
	beats := make(chan Beat, 1000)
	k, err := NewKeeper(b.Store, &KeeperOptions{OnBeat: func(beat Beat) {
		select {
		case beats <- beat:
		default:
		}
	}})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { assert.NoError(t, k.Run(ctx)) })
	holds := make([]*Hold, len(leases))
	for i := range leases {
		b.begun(t, leases[i])
		holds[i] = k.Hold(t.Context(), &leases[i])
	}
	var attaching sync.WaitGroup
	for i := range leases {
		attaching.Go(func() {
			for range 200 {
				assert.NoError(t, holds[i].Attach(nil))
				assert.NoError(t, holds[i].Attach(riding(b, leases[i])))
			}
		})
	}
	attaching.Wait()
	deadline := time.After(patience)
	for moved := 0; moved < len(leases); {
		select {
		case <-beats:
		case <-deadline:
			require.FailNow(t, "no beat has moved all records")
		}
		moved = 0
		for i := range leases {
			if b.kept(t, b.keys.Once(leases[i].ID))["until"] != "7" {
				moved++
			}
		}
	}
	for _, h := range holds {
		h.Done()
	}
	stop()
	running.Wait()
	verdicts := make([]Verdict, len(leases))
	for i := range leases {
		verdicts[i] = with(verdict(Ack, leases[i]), &Attached{Key: b.keys.Once(leases[i].ID), Owner: leases[i].Token})
	}
	b.settle(t, verdicts...)
}
