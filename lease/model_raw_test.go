package lease

import (
	"context"
	"fmt"
	"slices"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leaseq/leaseq/internal/script"
)

type ctxt = context.Context

// rawProcess is a process that writes its calls itself: one session for claims, whose answers it may not see, and one for
// all else, and it repeats what it sent before.
type rawProcess struct {
	claims, others rawSession
	seen           int64
	given          []Lease // by its last claim
}

// A rawSession is a session and all that was sent in it.
type rawSession struct {
	name   string
	number uint64
	sent   []*script.Request
}

func (r *rawProcess) forget(w *world, name string) {
	if r.claims.name == name {
		for _, l := range r.given { // nobody gives these back any more
			delete(w.unseen, l.Token)
		}
		r.claims, r.given, r.seen = rawSession{}, nil, 0
	}
	if r.others.name == name {
		r.others = rawSession{}
	}
}

// open gives a session by way of a call that does nothing.
func (w *world) open(s *rawSession) {
	if s.name != "" {
		return
	}
	call := &script.Call{Op: "cancel", Script: cancelScript, Args: []any{"nobody"}}
	sessions := script.NewSessions(w.b.runner, "raw")
	done := w.call(1, func() error {
		if err := sessions.Do(w.ctx, call); err != nil {
			return err
		}
		return call.Err
	})
	require.Equal(w.t, "0", done[0].Rest)
	s.name, s.number, s.sent = done[0].session, done[0].Number, nil
}

// send makes the next call of a session, and returns what its record tells of it.
func (w *world) send(s *rawSession, sc *script.Script, args ...any) (*script.Request, answered) {
	return w.sendWith(s, sc, nil, args...)
}

// sendWith is send with records.
func (w *world) sendWith(s *rawSession, sc *script.Script, records []string, args ...any) (*script.Request, answered) {
	s.number++
	req := &script.Request{Script: sc, Args: append([]any{s.name, s.number}, args...), Records: records}
	done := w.call(1, func() error { w.b.runner.Send(w.ctx, req); return req.Err })
	require.Equal(w.t, s.name, done[0].session)
	s.sent = append(s.sent, req)
	return req, done[0]
}

// lossyClaim is a claim of a process that did or did not see the answer to the claim before.
func (w *world) lossyClaim() {
	n, saw := draw(w, rapid.IntRange(0, 3), "n"), draw(w, rapid.Bool(), "saw")
	_, o := w.drawClaim()
	r := &w.raw
	w.open(&r.claims)
	var unseen []string
	for _, l := range r.given {
		delete(w.unseen, l.Token)
		if unseen = append(unseen, l.Token); saw {
			r.seen = l.Fence
		}
	}
	if saw {
		w.known = append(w.known, r.given...)
		unseen = nil
	}
	bytes := o.Bytes
	if bytes == 0 {
		bytes = MaxBytes
	}
	req, a := w.send(&r.claims, claimScript, r.seen, n, ceilMillis(o.Lease), bytes, "stub")
	got, short := claimed(&script.Call{Reply: req.Reply, SentAt: req.SentAt, Session: a.session, Number: a.Number}, o)
	w.claimed(a, n, o, got, short, unseen)
	r.given = got.Jobs
	for _, l := range r.given {
		w.unseen[l.Token] = true
	}
}

// rawCall makes a call that rawRepeat may send again.
func (w *world) rawCall() {
	s := &w.raw.others
	w.open(s)
	switch draw(w, rapid.IntRange(0, 2), "call") {
	case 0:
		verdicts, same := w.drawVerdicts()
		call, err := w.b.settleCall(verdicts)
		require.NoError(w.t, err)
		_, a := w.sendWith(s, settleScript, call.Records, call.Args...)
		require.Equal(w.t, w.Settle(a.When, same), a.Rest)
	case 1:
		ids := draw(w, someIDs, "ids")
		args, err := idArgs("cancel", nil, ids)
		require.NoError(w.t, err)
		_, a := w.send(s, cancelScript, args...)
		require.Equal(w.t, w.Cancel(ids), a.Rest)
	default:
		items, same := w.drawItems()
		args, err := enqueueArgs(items)
		require.NoError(w.t, err)
		_, a := w.send(s, enqueueScript, args...)
		require.Equal(w.t, w.Enqueue(a.When, same), a.Rest)
	}
}

// rawRepeat sends again what was sent before: the last number is answered as it was, a smaller one is refused, and
// nothing changes.
func (w *world) rawRepeat() {
	s := &w.raw.others
	if draw(w, rapid.Bool(), "claims") {
		s = &w.raw.claims
	}
	if len(s.sent) == 0 {
		return
	}
	at := draw(w, rapid.IntRange(0, len(s.sent)-1), "which")
	again := &script.Request{Script: s.sent[at].Script, Args: slices.Clone(s.sent[at].Args), Records: s.sent[at].Records}
	w.b.runner.Send(w.ctx, again)
	require.NoError(w.t, again.Err)
	if again.Args[1] == any(s.number) {
		require.Equal(w.t, []any{"AGAIN", w.Sessions[s.name].Rest}, again.Reply)
		return
	}
	require.Equal(w.t, []any{"STALE"}, again.Reply)
}

// rawSeal asks what the call before did; sometimes it skips a number, which then never ran.
func (w *world) rawSeal() {
	s := &w.raw.others
	w.open(s)
	want := "r" + w.Sessions[s.name].Rest
	if draw(w, rapid.Bool(), "skip") {
		s.number++
		want = "n"
		// The number that is skipped can run no more afterwards.
		s.sent = append(s.sent, &script.Request{Script: cancelScript, Args: []any{s.name, s.number, "a"}})
	}
	s.number++
	req := &script.Request{Script: ownScript("seal"), Args: []any{s.name, s.number}}
	w.b.runner.Send(w.ctx, req)
	require.NoError(w.t, req.Err)
	require.Equal(w.t, []any{"OK", want}, req.Reply)
	now := readSession(w.t, w.b.picture(w.ctx, w.t).Hashes["sessions"][s.name])
	require.Equal(w.t, []any{s.number, want}, []any{now.Number, now.Rest})
	w.Answered(s.name, now.Number, now.When, now.Rest)
}

// rawStranger makes calls in a session that does not exist: they do nothing.
func (w *world) rawStranger() {
	l, id := w.lease(), draw(w, anyID, "id")
	for _, req := range []*script.Request{
		{Script: settleScript, Args: []any{"1-gone", 1, "stub", "a", l.ID, l.Token}},
		{Script: claimScript, Args: []any{"1-gone", 1, 0, 3, 0, MaxBytes, "stub"}},
		{Script: cancelScript, Args: []any{"1-gone", 1, id}},
		{Script: redriveScript, Args: []any{"1-gone", 1, 0, "", id}},
		{Script: purgeScript, Args: []any{"1-gone", 1, string(Due), 0, "", id}},
		{Script: enqueueScript, Args: []any{"1-gone", 1, 1, "1", 0, "", "", "0", "", id, "record"}},
		{Script: rescheduleScript, Args: []any{"1-gone", 1, id, "now"}},
		{Script: buryScript, Args: []any{"1-gone", 1, "stub", "why", id}},
		{Script: editScript, Args: []any{"1-gone", 1, 1, id, 1, 0, "", "record"}},
		{Script: importScript, Args: []any{"1-gone", 1, "nobody", "dead", 5, "record", "", ""}},
		{Script: ownScript("seal"), Args: []any{"1-gone", 1}},
	} {
		w.b.runner.Send(w.ctx, req)
		require.NoError(w.t, req.Err)
		require.Equal(w.t, []any{"NOSESSION"}, req.Reply, fmt.Sprint(req.Script.Name))
	}
}
