package lease

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/script"
)

// Of three claims in one millisecond, two of them of one session, only what nobody saw is given back.
func TestOfWhatWasLeasedInOneMillisecondOnlyTheUnseenIsGivenBack(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.put(t, "a-seen", "b-unseen", "c-theirs")
		ask := func(sc *script.Script, args ...any) []any {
			req := &script.Request{Script: sc, Args: args}
			b.runner.Send(t.Context(), req)
			require.NoError(t, req.Err)
			require.Equal(t, "OK", req.Status())
			return req.Reply
		}
		mine := ask(ownScript("open"), "random", "holder")[1]
		seen := ask(claimScript, mine, 1, 0, 1, 0, MaxBytes, "stub")[4]
		ask(claimScript, mine, 2, seen, 1, 0, MaxBytes, "stub")
		theirs := takeFrom(t, b.another(t, nil), 1)[0]
		same, err := b.rdb.ZScore(t.Context(), b.key("processing"), "b-unseen").Result()
		require.NoError(t, err)
		for _, id := range []string{"a-seen", theirs.ID} {
			require.NoError(t, b.rdb.ZAdd(t.Context(), b.key("processing"), redis.Z{Score: same, Member: id}).Err())
		}
		ask(claimScript, mine, 3, seen, 0, 0, MaxBytes, "stub")
		assert.Equal(t, []string{"b-unseen"}, b.rdb.ZRange(t.Context(), b.key("due"), 0, -1).Val())
		assert.Equal(t, []string{"a-seen", "c-theirs"}, b.rdb.ZRange(t.Context(), b.key("processing"), 0, -1).Val())
	})
}
