package lease

import (
	"context"
	"strconv"
	"time"
)

// byIDAnswers are those of calls about jobs in due and dead, and of a listing.
func byIDAnswers() []question {
	ids := []string{"a", "b"}
	return []question{
		{rescheduleScript, []any{"OK", "o2"}, func(ctx context.Context, s *Store) error {
			return understoodAll(s.Promote(ctx, ids))
		}, coded("o01234")},
		{buryScript, []any{"OK", "o0"}, func(ctx context.Context, s *Store) error {
			return understoodAll(s.Bury(ctx, "why", ids))
		}, coded("o01234")},
		{editScript, []any{"OK", "nt"}, func(ctx context.Context, s *Store) error {
			return understoodAll(s.Edit(ctx, []Edit{{ID: "a", Record: []byte("r")}, {ID: "b", Record: []byte("r")}}))
		}, coded("ont01234")},
		{importScript, []any{"OK", "c3"}, func(ctx context.Context, s *Store) error {
			return understoodAll(s.Import(ctx, []Kept{
				{ID: "a", Place: Dead, At: time.UnixMilli(1), Record: []byte("r")}, {ID: "b", Place: Due, At: time.UnixMilli(1), Record: []byte("r")},
			}))
		}, coded("c1234")},
		{listScript, []any{"OK", int64(1796001153160), int64(1), "a", "17", "b", "inf"}, func(ctx context.Context, s *Store) error {
			_, err := s.List(ctx, Dead, 2, nil)
			return err
		}, func(r []any) bool {
			if len(r) < 3 || len(r) > 7 || len(r)%2 == 0 || r[0] != "OK" || !isInts(r[1:3]) || !isTexts(r[3:]) {
				return false
			}
			for i := 4; i < len(r); i += 2 {
				if _, err := strconv.ParseFloat(r[i].(string), 64); err != nil {
					return false
				}
			}
			return r[2] == int64(0) || r[2] == int64(1) && len(r) > 3
		}},
	}
}
