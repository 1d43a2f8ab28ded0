package lease

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/script"
)

// An answering client answers scripts by itself: the first call of one of them with what the fuzzer has made, all others
// as a server would.
type answering struct {
	t      testing.TB
	script *script.Script
	answer any
	given  bool
	usual  map[string][]any // by the script's digest
}

func (a *answering) DialHook(next redis.DialHook) redis.DialHook { return next }

func (a *answering) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		cmd.(interface{ SetVal(any) }).SetVal(a.reply(cmd.Args()))
		return nil
	}
}

func (a *answering) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			cmd.(interface{ SetVal(any) }).SetVal(a.reply(cmd.Args()))
		}
		return nil
	}
}

func (a *answering) reply(args []any) any {
	sha, _ := args[1].(string)
	if sha == a.script.SHA() && !a.given {
		a.given = true
		return a.answer
	}
	usual, ok := a.usual[sha]
	require.True(a.t, ok, "%v", args[:2])
	return usual
}

// A question is one kind of call, with a usual answer to it.
type question struct {
	script *script.Script
	usual  []any
	call   func(ctx context.Context, s *Store) error // an error only where the answer was not understood
	fits   func(reply []any) bool                    // whether it must be understood
}

// understood leaves out the errors that are proper answers to an item.
func understood(err error) error {
	if errors.Is(err, ErrLost) || errors.Is(err, ErrDuplicate) || errors.Is(err, ErrCancelled) || errors.Is(err, ErrChanged) || errors.As(err, new(*TooLargeError)) ||
		errors.Is(err, ErrQueueFull) || errors.As(err, new(*DelayTooLongError)) {
		return nil
	}
	return err
}

func understoodAll(errs []error, err error) error {
	for _, one := range errs {
		err = errors.Join(err, understood(one))
	}
	return err
}

func isCodes(value any, letters string, n int) bool {
	text, ok := value.(string)
	return ok && len(text) == n && strings.Trim(text, letters) == ""
}

func isInts(values []any) bool {
	for _, value := range values {
		if _, ok := value.(int64); !ok {
			return false
		}
	}
	return true
}

func isTexts(values []any) bool {
	for _, value := range values {
		if _, ok := value.(string); !ok {
			return false
		}
	}
	return true
}

// isNumber reports whether a value is a whole number as text, of a sign at most and digits, which fits 64 bits.
func isNumber(value any) bool {
	text, ok := value.(string)
	digits := strings.TrimLeft(strings.TrimLeft(text, "+-"), "0")
	signs := len(text) - len(strings.TrimLeft(text, "+-"))
	return ok && signs <= 1 && len(text) > signs && strings.Trim(text[signs:], "0123456789") == "" &&
		(len(digits) < 19 || len(digits) == 19 && (digits < "9223372036854775808" || digits == "9223372036854775808" && text[0] == '-'))
}

// stored reports whether a numbered call got an answer that was kept, and what that is.
func stored(r []any) (string, bool) {
	if len(r) < 2 || r[0] != "OK" && r[0] != "AGAIN" {
		return "", false
	}
	rest, ok := r[1].(string)
	return rest, ok
}

// reopened is the answer to a session that is gone, which did nothing: the call is made again in another.
func reopened(r []any) bool { return r[0] == "NOSESSION" }

func coded(letters string) func(r []any) bool {
	return func(r []any) bool {
		rest, ok := stored(r)
		return reopened(r) || ok && isCodes(rest, letters, 2)
	}
}

func bulky(r []any, codes func(string) bool) bool {
	rest, ok := stored(r)
	parts := strings.SplitN(rest, " ", 3)
	return reopened(r) || ok && len(parts) == 3 && isNumber(parts[0]) && (parts[1] == "0" || parts[1] == "1") && codes(parts[2])
}

func bothItems(codes string) bool { return isCodes(codes, "o01234", 2) }

func anyItems(codes string) bool { return isCodes(codes, "o01234", len(codes)) }

// numberedAnswers are those of calls that a session repeats.
func numberedAnswers() []question {
	ids := []string{"a", "b"}
	return []question{
		{settleScript, []any{"OK", "od"}, func(ctx context.Context, s *Store) error {
			verdicts := []Verdict{{Op: Ack, ID: "a", Token: "1:s:1"}, {Op: Nack, ID: "b", Token: "2:s:1", Reason: "no"}}
			done, err := s.Settle(ctx, verdicts)
			for i := range done {
				err = errors.Join(err, understood(done[i].Err))
			}
			return err
		}, coded("odxc01234")},
		{enqueueScript, []any{"OK", "hf 10 0 - 3"}, func(ctx context.Context, s *Store) error {
			return understoodAll(s.Enqueue(ctx, []Item{{ID: "a", Record: []byte("r")}, {ID: "b", Record: []byte("r")}}))
		}, codedWithin("c1234thlf", "thlf") /* p is no answer: none of these replaces */},
		{cancelScript, []any{"OK", "cp"}, func(ctx context.Context, s *Store) error {
			removed, err := s.Cancel(ctx, ids)
			for i := range removed {
				err = errors.Join(err, understood(removed[i].Err))
			}
			return err
		}, coded("cp0")},
		{redriveScript, []any{"OK", "1796001153160 0 o3"}, func(ctx context.Context, s *Store) error {
			return understoodAll(s.Redrive(ctx, ids))
		}, func(r []any) bool { return bulky(r, bothItems) }},
		{purgeScript, []any{"OK", "1796001153160 1 ooo"}, func(ctx context.Context, s *Store) error {
			_, err := s.PurgeNext(ctx, Dead, &Cursor{}, 3)
			return err
		}, func(r []any) bool { return bulky(r, anyItems) }},
		{deleteScript, []any{"OK", "2 0 1 30"}, func(ctx context.Context, s *Store) error {
			_, err := s.DeleteNext(ctx, 3, LeaveRunning)
			return err
		}, func(r []any) bool {
			rest, ok := stored(r)
			parts := strings.Split(rest, " ")
			for _, part := range parts {
				ok = ok && isNumber(part) && (part[0] != '-' || strings.Trim(part, "-0") == "")
			}
			return reopened(r) || ok && len(parts) == 4
		}},
	}
}

// plainAnswers are those of calls that may run twice.
func plainAnswers() []question {
	ids := []string{"a", "b"}
	isOK := func(r []any, n int) bool { return len(r) == n && r[0] == "OK" }
	return []question{
		{extendScript, []any{"OK", "oc", int64(1000)}, func(ctx context.Context, s *Store) error {
			got, err := s.Extend(ctx, 0, []Held{{ID: "a", Token: "1:s:1"}, {ID: "b", Token: "2:s:1"}})
			return understoodAll(got.Results, err)
		}, func(r []any) bool {
			return isOK(r, 3) && isCodes(r[1], "oc01234", 2) && isInts(r[2:]) && r[2].(int64) > 0
		}},
		{expireScript, []any{"OK", int64(1), int64(0), int64(0), int64(0), int64(0), int64(500), int64(0), int64(1000)}, func(ctx context.Context, s *Store) error {
			_, err := s.Expire(ctx, 10, false)
			return err
		}, func(r []any) bool { return isOK(r, 9) && isInts(r[1:]) }},
		{statsScript, []any{
			"OK", int64(1), int64(1), int64(0), int64(0), int64(0), int64(0), int64(1), int64(2), int64(3), int64(-1), int64(-1), int64(-1), []any{"enqueued", "1"},
		}, func(ctx context.Context, s *Store) error {
			_, err := s.Stats(ctx)
			return err
		}, func(r []any) bool {
			if !isOK(r, 14) || !isInts(r[1:13]) {
				return false
			}
			pairs, ok := r[13].([]any)
			return ok && len(pairs)%2 == 0 && isTexts(pairs)
		}},
		{inspectScript, []any{
			"OK", int64(1796001153160), "2", "1796001153160", "record", "1 0 0 - - -", "1796001153160\t1\tme\twhy\n\nstack", "!7:s:1", "me", "",
		}, func(ctx context.Context, s *Store) error {
			infos, err := s.Inspect(ctx, []string{"a"})
			if err == nil && len(infos) != 1 {
				err = errors.New("fewer than asked for")
			}
			return err
		}, func(r []any) bool {
			return isOK(r, 10) && isInts(r[1:2]) && isTexts(r[2:]) && isCodes(r[2], "01234", 1)
		}},
		{policyScript, []any{"OK", "1796001153160518", int64(1)}, func(ctx context.Context, s *Store) error {
			_, err := s.Publish(ctx, &Policy{Lease: time.Second})
			return err
		}, func(r []any) bool { return isOK(r, 3) && isInts(r[2:]) }},
		{eraseScript, []any{"OK", int64(0), int64(12)}, func(ctx context.Context, s *Store) error {
			_, err := s.Erase(ctx)
			return err
		}, func(r []any) bool { return isOK(r, 3) && isInts(r[1:]) }},
		{ownScript("trim"), []any{"OK", "0", int64(1)}, func(ctx context.Context, s *Store) error {
			_, _, err := s.TrimSessions(ctx, "0")
			return err
		}, func(r []any) bool { return isOK(r, 3) && isTexts(r[1:2]) && isInts(r[2:]) }},
		{ownScript("open"), []any{"OK", "1796001153160518-00ff"}, func(ctx context.Context, s *Store) error {
			return understoodAll(s.Redrive(ctx, ids))
		}, func(r []any) bool { return isOK(r, 2) && isTexts(r[1:]) && r[1] != "" }},
	}
}

// mutate changes a usual answer as the fuzzer says: it takes, cuts, doubles and replaces elements.
func mutate(reply []any, edits []byte) any {
	out := append([]any{}, reply...)
	for d := (&drawn{edits}); len(d.rest) > 0 && len(out) > 0; {
		at := int(d.byte()) % len(out)
		switch d.byte() % 8 {
		case 0:
			out = out[:at]
		case 1:
			out = append(out, out[at])
		case 2:
			out[at], out[0] = out[0], out[at]
		case 3:
			return d.value(0)
		case 4, 5:
			if text, ok := out[at].(string); ok {
				cut := min(int(d.byte()), len(text))
				out[at] = text[:cut] + d.text() + text[cut:]
				break
			}
			out[at] = d.value(0)
		default:
			out[at] = d.value(0)
		}
	}
	return out
}

// drawn makes values out of bytes.
type drawn struct{ rest []byte }

func (d *drawn) byte() (b byte) {
	if len(d.rest) > 0 {
		b, d.rest = d.rest[0], d.rest[1:]
	}
	return b
}

func (d *drawn) text() string {
	n := min(int(d.byte()%32), len(d.rest))
	text := string(d.rest[:n])
	d.rest = d.rest[n:]
	return text
}

var words = []string{"OK", "AGAIN", "STALE", "NOSESSION", "SHORT", "n", "r", "o", "0", "-1", "9223372036854775807", "1e300", "inf", "nan", ""}

func (d *drawn) value(depth int) any {
	switch kind := d.byte(); kind % 10 {
	case 0:
		return nil
	case 1:
		return int64(d.byte()) - 3
	case 2:
		var b [8]byte
		d.rest = d.rest[copy(b[:], d.rest):]
		return int64(binary.BigEndian.Uint64(b[:]))
	case 3:
		return d.text()
	case 4:
		return float64(kind) / 7
	case 5:
		return kind > 99
	case 6:
		return errors.New("ERR an error inside of an answer")
	case 7:
		return map[any]any{"OK": int64(kind)}
	case 8:
		var list []any
		for range d.byte() % 5 {
			if depth < 4 {
				list = append(list, d.value(depth+1))
			}
		}
		return list
	}
	return words[int(d.byte())%len(words)]
}

// FuzzAnswers: whatever a script's answer is, it is taken for what it says, or the call has an error. None makes a call
// panic, hang, or make something up.
func FuzzAnswers(f *testing.F) {
	const kinds = 23
	for kind := range uint8(kinds) {
		f.Add(kind, []byte{})
		f.Add(kind, []byte{0, 0})
		f.Add(kind, []byte{1, 6, 0})
	}
	f.Fuzz(func(t *testing.T, kind uint8, edits []byte) {
		hostile := &answering{t: t, usual: map[string][]any{
			ownScript("seal").SHA(): {"OK", "n"}, ownScript("close").SHA(): {"OK", int64(1)},
		}}
		all := slices.Concat(numberedAnswers(), byIDAnswers(), plainAnswers(), []question{claimAnswer(t, hostile), limitsAnswer(), retainAnswer(), resumeAnswer()})
		require.Len(t, all, kinds)
		for _, one := range all {
			hostile.usual[one.script.SHA()] = one.usual
		}
		one := all[int(kind)%kinds]
		hostile.script, hostile.answer = one.script, mutate(one.usual, edits)
		if hostile.answer == nil {
			return // no script answers so, and the client takes it for an error of its own
		}
		rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
		defer rdb.Close()
		rdb.AddHook(hostile)
		s, err := NewStore(rdb, "answers", nil)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		err = one.call(ctx, s)
		require.NoError(t, ctx.Err(), "it hangs")
		reply, isArray := hostile.answer.([]any)
		if isArray && len(reply) > 0 && one.fits(reply) {
			require.NoError(t, err, "%s: %q", one.script.Name, reply)
		} else {
			require.Error(t, err, "%s: %q", one.script.Name, hostile.answer)
		}
		require.NoError(t, s.Close(ctx))
	})
}
