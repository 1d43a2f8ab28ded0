package lease

import (
	"context"
	"strconv"
	"strings"
	"time"
)

// byIDAnswers are those of calls about jobs in due and dead, and of a listing.
func byIDAnswers() []question {
	ids := []string{"a", "b"}
	return []question{
		{rescheduleScript, []any{"OK", "o2"}, func(ctx context.Context, s *Store) error {
			return understoodAll(s.Promote(ctx, ids))
		}, codedWithin("o01234l", "l")},
		{buryScript, []any{"OK", "o0"}, func(ctx context.Context, s *Store) error {
			return understoodAll(s.Bury(ctx, "why", ids))
		}, coded("o01234")},
		{editScript, []any{"OK", "ht 10 0"}, func(ctx context.Context, s *Store) error {
			return understoodAll(s.Edit(ctx, []Edit{{ID: "a", Record: []byte("r")}, {ID: "b", Record: []byte("r")}}))
		}, codedWithin("onth01234", "th")},
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

// codedWithin are codes of two items of which some are told together with a limit: those of limited, in this order.
func codedWithin(letters, limited string) func(r []any) bool {
	return func(r []any) bool {
		rest, ok := stored(r)
		codes, limits, _ := strings.Cut(rest, " ")
		told := strings.Fields(limits)
		for i, letter := range limited {
			if !strings.ContainsRune(codes, letter) {
				continue
			}
			if i >= len(told) {
				return reopened(r)
			}
			if n, err := strconv.ParseInt(told[i], 10, 64); err != nil || n < 0 {
				return reopened(r)
			}
		}
		return reopened(r) || ok && isCodes(codes, letters, 2)
	}
}

func limitsAnswer() question {
	return question{limitsScript, []any{"OK", []any{"lease_ms", "1000", "pinned", "lease_ms"}}, func(ctx context.Context, s *Store) error {
		_, err := s.PolicyState(ctx)
		return err
	}, func(r []any) bool {
		if len(r) != 2 || r[0] != "OK" {
			return false
		}
		pairs, ok := r[1].([]any)
		return ok && len(pairs)%2 == 0 && isTexts(pairs)
	}}
}

func resumeAnswer() question {
	return question{pauseScript, []any{"OK", "p"}, func(ctx context.Context, s *Store) error {
		_, err := s.Resume(ctx)
		return err
	}, func(r []any) bool {
		rest, ok := stored(r)
		return reopened(r) || ok && (rest == "p" || rest == "n")
	}}
}

func retainAnswer() question {
	return question{retainScript, []any{"OK", int64(256), int64(3), int64(1)}, func(ctx context.Context, s *Store) error {
		_, err := s.Retain(ctx, 256)
		return err
	}, func(r []any) bool {
		return len(r) == 4 && r[0] == "OK" && isInts(r[1:]) && r[1].(int64) >= 0 && r[2].(int64) >= 0
	}}
}
