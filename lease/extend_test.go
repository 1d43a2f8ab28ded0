package lease

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/netfault"
)

func held(l Lease) Held { return Held{ID: l.ID, Token: l.Token} }

func TestExtendMovesExpiriesLaterAndNeverBack(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		ctx := t.Context()
		b.publish(t, Policy{Lease: 10 * time.Second})
		b.put(t, "a", "b")
		l := b.take(t, 2)
		for _, length := range []time.Duration{0, time.Minute, time.Hour + 1, time.Second, 0} {
			want := length
			if length == 0 {
				want = 10 * time.Second
			}
			want = millis(ceilMillis(want))
			was := []int64{b.score(t, Processing, "a"), b.score(t, Processing, "b")}
			before, asked := b.now(t), time.Now()
			got, err := b.Extend(ctx, length, []Held{held(l[0]), held(l[1]), held(l[0])})
			require.NoError(t, err)
			after := b.now(t)
			assert.Equal(t, []error{nil, nil, nil}, got.Results)
			assert.Equal(t, want, got.Length)
			assert.False(t, got.Deadline.Before(asked.Add(want)), "from just before the send, not before that")
			assert.WithinDuration(t, asked.Add(want), got.Deadline, 5*time.Second)
			for i, id := range []string{"a", "b"} {
				now := b.score(t, Processing, id)
				assert.GreaterOrEqual(t, now, was[i], "never back")
				assert.GreaterOrEqual(t, now*1000, before.Add(want).UnixMicro(), "rounded up")
				assert.LessOrEqual(t, now, max(was[i], after.Add(want).UnixMilli()+1))
			}
		}
		assert.Equal(t, l[0].Token, b.rdb.HGet(ctx, b.key("leases"), "a").Val(), "the token stays")
	})
}

func TestARefusedExtendTellsWhereTheJobIsAndChangesNothing(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		ctx := t.Context()
		current := b.spread(t)
		expired := func(id string) Lease {
			b.put(t, id)
			l := b.take(t, 1)[0]
			b.expireAll(t, l)
			return l
		}
		taken := expired("taken")
		b.take(t, 1)
		before := b.dump(t)
		for _, extend := range []func(context.Context, time.Duration, []Held) (Extended, error){b.Extend, b.ExtendOnce} {
			got, err := extend(ctx, time.Hour, []Held{
				{ID: "due", Token: current.Token}, held(taken), {ID: "dead", Token: current.Token}, {ID: "done", Token: current.Token},
				{ID: "nowhere", Token: current.Token}, {ID: "processing", Token: "1:s:1"}, {ID: "processing"},
				{ID: "processing", Token: "!" + current.Token},
			})
			require.NoError(t, err)
			for i, place := range []Place{Due, Processing, Dead, Done} {
				assert.ErrorIs(t, got.Results[i], ErrLost)
				assert.Equal(t, place, got.Results[i].(*LostError).Place)
			}
			assert.Equal(t, ErrGone, got.Results[4])
			for _, err := range got.Results[5:] {
				assert.Equal(t, &LostError{ID: "processing", Place: Processing}, err)
			}
		}
		assert.Equal(t, before, b.dump(t), "above all no member of processing was made")
		assert.Equal(t, 16, b.count(t, "refused_extends"))
	})
}

func TestExtendNeverMakesAMember(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.put(t, "a")
		l := b.take(t, 1)[0]
		require.NoError(t, b.rdb.ZRem(t.Context(), b.key("processing"), "a").Err()) // by somebody's hand
		_, err := b.Extend(t.Context(), 0, []Held{held(l)})
		require.NoError(t, err)
		assert.Zero(t, b.rdb.ZCard(t.Context(), b.key("processing")).Val())
		require.NoError(t, b.rdb.ZAdd(t.Context(), b.key("processing"), redis.Z{Score: 1, Member: "a"}).Err())
	})
}

func TestExtendOfACancelledJobMovesNothing(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		ctx := t.Context()
		b.put(t, "a", "b")
		l := b.take(t, 2)
		_, err := b.Cancel(ctx, []string{"a"})
		require.NoError(t, err)
		was := b.score(t, Processing, "a")
		got, err := b.Extend(ctx, time.Hour, []Held{held(l[0]), held(l[1])})
		require.NoError(t, err)
		assert.Equal(t, []error{ErrCancelled, nil}, got.Results)
		assert.Equal(t, was, b.score(t, Processing, "a"))
		got, err = b.Extend(ctx, time.Hour, []Held{{ID: "a", Token: "1:s:1"}})
		require.NoError(t, err)
		assert.ErrorIs(t, got.Results[0], ErrLost, "a stranger learns that it is lost, not that it is cancelled")
	})
}

func TestALateExtendAndALateSettleSucceedUntilASweepHasTakenTheLease(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.put(t, "a", "b")
		l := b.take(t, 2)
		b.runOut(t, l...)
		got, err := b.Extend(t.Context(), 0, []Held{held(l[0])})
		require.NoError(t, err)
		assert.NoError(t, got.Results[0])
		assert.Equal(t, Settled{}, b.settle(t, verdict(Ack, l[1]))[0])
		swept, err := b.Expire(t.Context(), 10, true)
		require.NoError(t, err)
		assert.Zero(t, swept.Moved())
		assert.Equal(t, Processing, b.look(t, "a").Place)
	})
}

func TestExtendIsRepeatedUntilItIsAnsweredAndExtendOnceIsNot(t *testing.T) {
	t.Parallel()
	b, proxy := behindProxy(t, nil)
	b.put(t, "a")
	l := b.take(t, 1)
	for _, action := range []netfault.Action{netfault.DropReply, netfault.DropRequest} {
		tries := intercept(proxy, extendScript, first(3, action))
		got, err := b.Extend(t.Context(), time.Hour, []Held{held(l[0])})
		require.NoError(t, err)
		assert.NoError(t, got.Results[0])
		assert.EqualValues(t, 4, tries.Load())

		tries = intercept(proxy, extendScript, first(1, action))
		_, err = b.ExtendOnce(t.Context(), time.Hour, []Held{held(l[0])})
		assert.Error(t, err)
		assert.EqualValues(t, 1, tries.Load())
	}
}

func TestExtendEndsWithItsContextThoughTheServerIsSilent(t *testing.T) {
	t.Parallel()
	b, proxy := behindProxy(t, func(o *redis.Options) { o.ReadTimeout = 300 * time.Millisecond })
	b.put(t, "a")
	l := b.take(t, 1)
	proxy.BlackHole(true)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err := b.Extend(ctx, 0, []Held{held(l[0])})
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	proxy.BlackHole(false)
}
