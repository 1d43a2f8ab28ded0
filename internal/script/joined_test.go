package script

import (
	"os"
	"sync/atomic"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/netfault"
)

// A couple are two joined scripts, which no other test has.
type couple struct{ count, grab, both *Script }

func newCouple() *couple {
	p := &couple{count: MustLoad(os.DirFS("testdata"), "count.lua"), grab: MustLoad(os.DirFS("testdata"), "grab.lua")}
	p.both = Join(p.count, p.grab)
	return p
}

func (p *couple) calls(n int) (counting, grabbing *Call) {
	counting, grabbing = count("x"), grab(n)
	counting.Script, grabbing.Script = p.count, p.grab
	return counting, grabbing
}

// sorts counts the commands that a proxy sees, by name, and does to the nth of them what is asked.
func sorts(proxy *netfault.Proxy, act func(n int64, cmd []string) netfault.Action) (evalsha, eval *atomic.Int64) {
	evalsha, eval = new(atomic.Int64), new(atomic.Int64)
	proxy.Decide(func(cmd []string) netfault.Action {
		switch cmd[0] {
		case "evalsha":
			return act(evalsha.Add(1), cmd)
		case "eval":
			eval.Add(1)
		}
		return netfault.Pass
	})
	return evalsha, eval
}

func pass(int64, []string) netfault.Action { return netfault.Pass }

func TestTwoJoinedScriptsAreOneCallWithTwoAnswers(t *testing.T) {
	t.Parallel()
	d, proxy := faultyDesk(t, withRepeats)
	p := newCouple()
	opened, taken := p.calls(1)
	require.NoError(t, d.Do(t.Context(), opened, taken), "which opens the sessions, and brings the script")
	evalsha, eval := sorts(proxy, pass)
	for want := 2; want <= 4; want++ {
		counting, grabbing := p.calls(5)
		require.NoError(t, d.Do(t.Context(), counting, grabbing))
		require.NoError(t, counting.Err)
		require.NoError(t, grabbing.Err)
		assert.EqualValues(t, want-1, evalsha.Load())
		_, n := grabbed(grabbing.Reply)
		assert.Equal(t, 5, n)
		assert.Equal(t, want, d.stat(t, "x"))
		assert.NotEqual(t, counting.Session, grabbing.Session)
	}
	assert.Zero(t, eval.Load())
	assert.Equal(t, 16, d.stat(t, "grabbed"))
	assert.Zero(t, d.stat(t, "taken_back"), "what was seen is nobody's to take back")
}

func TestAJoinedScriptThatIsNotKnownIsSentWhole(t *testing.T) {
	t.Parallel()
	d, proxy := faultyDesk(t, nil)
	p := newCouple()
	_, eval := sorts(proxy, pass)
	for range 2 {
		counting, grabbing := p.calls(1)
		require.NoError(t, d.Do(t.Context(), counting, grabbing))
		require.NoError(t, counting.Err)
		require.NoError(t, grabbing.Err)
	}
	assert.LessOrEqual(t, eval.Load(), int64(1), "once, if no other test has brought it")
	assert.Equal(t, 2, d.stat(t, "x"))
}

func TestARepliesLossOfAJoinedCallIsThatOfBoth(t *testing.T) {
	t.Parallel()
	for _, action := range []netfault.Action{netfault.DropReply, netfault.DropRequest} {
		t.Run(action.String(), func(t *testing.T) {
			t.Parallel()
			d, proxy := faultyDesk(t, withRepeats)
			p := newCouple()
			counting, grabbing := p.calls(4)
			require.NoError(t, d.Do(t.Context(), counting, grabbing))
			sorts(proxy, func(n int64, cmd []string) netfault.Action {
				if n == 1 {
					return action
				}
				return netfault.Pass
			})
			counting, grabbing = p.calls(4)
			require.NoError(t, d.Do(t.Context(), counting, grabbing))
			require.NoError(t, counting.Err)
			require.NoError(t, grabbing.Err)
			assert.Equal(t, "2", counting.Rest)
			assert.Equal(t, 2, d.stat(t, "x"), "once each")
			_, n := grabbed(grabbing.Reply)
			if action == netfault.DropReply {
				assert.Equal(t, 4, d.stat(t, "taken_back"), "what nobody saw")
			}
			assert.Equal(t, d.stat(t, "grabbed"), 4+n+d.stat(t, "taken_back"))
		})
	}
}

func TestAHalfThatRaisesAnErrorLeavesTheOtherAlone(t *testing.T) {
	t.Parallel()
	d, proxy := faultyDesk(t, nil)
	p := newCouple()
	counting, grabbing := p.calls(1)
	require.NoError(t, d.Do(t.Context(), counting, grabbing))
	require.NoError(t, d.direct.Del(t.Context(), d.key("fence")).Err())
	require.NoError(t, d.direct.RPush(t.Context(), d.key("fence"), "no number").Err())
	evalsha, _ := sorts(proxy, pass)
	counting, grabbing = p.calls(1)
	require.NoError(t, d.Do(t.Context(), counting, grabbing))
	require.NoError(t, counting.Err)
	assert.Equal(t, "2", counting.Rest, "it had run, and gave its stored answer when it was asked alone")
	assert.Equal(t, 2, d.stat(t, "x"))
	var server *ServerError
	require.ErrorAs(t, grabbing.Err, &server)
	assert.Equal(t, "WRONGTYPE", server.Code)
	assert.EqualValues(t, 3, evalsha.Load(), "together, and each alone")
	require.NoError(t, d.direct.Del(t.Context(), d.key("fence")).Err())
}

func TestAJoinedAnswerOfAnotherFormIsNoAnswer(t *testing.T) {
	t.Parallel()
	p := newCouple()
	for _, reply := range [][]any{{"OK"}, {[]any{"OK", "1"}, "OK"}, {[]any{}, []any{}}, {[]any{"OK"}, []any{"OK"}, []any{"OK"}}} {
		requests := []*Request{{Script: p.count}, {Script: p.grab}}
		require.True(t, (&Request{Script: p.both, Reply: reply}).apart(requests))
		errs := 0
		for _, req := range requests {
			var odd *ReplyError
			if assert.True(t, req.Err == nil || assert.ErrorAs(t, req.Err, &odd)) && req.Err != nil {
				assert.Nil(t, req.Reply)
				errs++
			}
		}
		assert.Positive(t, errs, "%v", reply)
	}
}

func TestWhatCannotBeJoinedIsRefused(t *testing.T) {
	t.Parallel()
	tree := fstest.MapFS{"plain.lua": {Data: []byte("-- plain: does nothing\n-- KEYS: stats\n-- ARGV: none\n-- ANSWER: OK\nlocal stats = unpack(KEYS)\nreturn {'OK'}\n")}}
	plain := MustLoad(tree, "plain.lua")
	numbered := MustLoad(os.DirFS("testdata"), "count.lua")
	assert.Panics(t, func() { Join(plain, numbered) }, "it has no number")
	assert.Panics(t, func() { Join(numbered, plain) })
	assert.Panics(t, func() { Join(numbered, markScript) }, "it takes records")
}
