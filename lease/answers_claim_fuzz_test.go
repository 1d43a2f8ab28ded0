package lease

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// claimAnswer is that of a claim, whose jobs must come out as they were told.
func claimAnswer(t testing.TB, hostile *answering) question {
	return question{claimScript, []any{
		"OK", int64(1000), int64(-1), "", "1796001153160518", int64(2), int64(0), int64(1796001153160),
		"1796001153000 -inf", "1", "\n1 0 2 - 7 -", "ab", "record", "record", []any{"1796001153000", "1 0 0 - - 1796001152000", "late", "record"},
	}, func(ctx context.Context, s *Store) error {
		got, err := s.Claim(ctx, 10, nil)
		reply, _ := hostile.answer.([]any)
		late := len(reply) - claimHead - len(got.Jobs)
		if err != nil || len(reply) < claimHead || late != 0 && late != 1 {
			return err // or the usual answer came after it
		}
		if late == 1 {
			list, _ := reply[len(reply)-1].([]any)
			if lateFields*len(got.TooLate) != len(list) {
				return nil // as above
			}
			for i, job := range got.TooLate {
				require.Equal(t, []any{list[lateFields*i+2], list[lateFields*i+3]}, []any{job.ID, string(job.Record)})
				require.Empty(t, job.Token)
			}
		}
		require.Positive(t, got.Length)
		ids := ""
		for i, job := range got.Jobs {
			ids += job.ID
			require.True(t, strings.HasPrefix(job.Token, "17960") || reply[4] != "1796001153160518", job.Token)
			require.Equal(t, string(job.Record), reply[claimHead+i])
			require.True(t, i == 0 || job.Fence == got.Jobs[i-1].Fence+1, "fences grow")
			require.True(t, job.ClaimedAt().Equal(got.At))
		}
		require.Equal(t, reply[11], ids)
		return nil
	}, func(r []any) bool {
		if r[0] == "AGAIN" || reopened(r) {
			return true // it is sent again, under another number or in another session
		}
		_, n, ok := checkClaim(r)
		return ok && int(n) <= len(r)-claimHead && len(r)-claimHead <= int(n)+1
	}}
}
