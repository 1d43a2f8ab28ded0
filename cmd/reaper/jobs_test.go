package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/reliable"
)

// run runs a command on the site's queue, to its end; the queue's name follows the command's.
func (s *site) run(t *testing.T, command string, args ...string) (code int, out, errOut string) {
	t.Helper()
	return invoke(t, nil, s.args(serverURL(t), append([]string{command, s.queue}, args...)...)...)
}

// ok is run of what must work, and returns what it said.
func (s *site) ok(t *testing.T, command string, args ...string) string {
	t.Helper()
	code, out, errOut := s.run(t, command, args...)
	require.Zero(t, code, errOut)
	return out
}

// put enqueues jobs, and registers the queue.
func (s *site) put(t *testing.T, items ...reliable.Item) {
	t.Helper()
	results, err := s.q.EnqueueMany(t.Context(), items)
	require.NoError(t, err)
	for _, result := range results {
		require.NoError(t, result.Err)
	}
}

// kill has jobs die with a reason, one after the other.
func (s *site) kill(t *testing.T, reason error, items ...reliable.Item) {
	t.Helper()
	for _, item := range items {
		item.At = time.UnixMilli(1)
		s.put(t, item)
		batch, err := s.q.Claim(t.Context(), 1, nil)
		require.NoError(t, err)
		require.Len(t, batch.Jobs, 1)
		require.NoError(t, batch.Jobs[0].Bury(t.Context(), reason))
	}
}

func job(id string) reliable.Item {
	return reliable.Item{ID: id, Kind: "refund.pay", Payload: []byte("payload of " + id)}
}

func later(id string) reliable.Item {
	item := job(id)
	item.Delay = time.Hour
	return item
}

// firsts are the first words of a table's rows.
func firsts(out string) (words []string) {
	for line := range strings.Lines(out) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] != "id" && fields[0] != "There" {
			words = append(words, fields[0])
		}
	}
	return words
}

func TestListShowsEachPlaceInItsOrderPageByPage(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.kill(t, errors.New("why not"), job("d1"), job("d2"), job("d3"))
	s.put(t, job("p"))
	batch, err := s.q.Claim(t.Context(), 1, nil)
	require.NoError(t, err)
	s.put(t, later("l1"), later("l2"), job("now"))

	out := s.ok(t, "list")
	assert.Equal(t, []string{"now", "l1", "l2"}, firsts(out))
	assert.Contains(t, out, "in 1h0m0s")
	assert.Equal(t, []string{"p"}, firsts(s.ok(t, "list", "--place", "processing")))
	out = s.ok(t, "list", "--place", "dead", "--limit", "2")
	assert.Equal(t, []string{"d1", "d2"}, firsts(out))
	_, after, found := strings.Cut(out, "There are more: --after '")
	require.True(t, found, out)
	assert.Equal(t, []string{"d3"}, firsts(s.ok(t, "list", "--place", "dead", "--after", strings.TrimSuffix(after, "'\n"))))
	assert.Equal(t, "No jobs in done of queue "+s.queue+".\n", s.ok(t, "list", "--place", "done"))

	var got listJSON
	require.NoError(t, json.Unmarshal([]byte(s.ok(t, "list", "--place", "dead", "--limit", "2", "--batch", "1", "--kind", "refund.pay", "--json")), &got))
	require.Len(t, got.Jobs, 2)
	require.NotNil(t, got.Next)
	one := got.Jobs[0]
	assert.Equal(t, []any{"d1", reliable.Dead, "refund.pay", 13, "discarded", "why not"}, []any{one.ID, one.Place, one.Kind, one.PayloadSize, one.Class, one.Errors[0].Reason})
	assert.Nil(t, one.Payload, "payloads only on demand")
	require.NoError(t, batch.Jobs[0].Ack(t.Context()))
}

func TestAFilterThatFindsMoreThanTheLimitGoesOnBehindTheLastShown(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for i := range 9 {
		item := job(fmt.Sprintf("j%d", i))
		item.Kind = fmt.Sprint("k", i%2)
		s.kill(t, errors.New("why"), item)
	}
	var seen []string
	for after := ""; ; {
		var got listJSON
		require.NoError(t, json.Unmarshal([]byte(s.ok(t, "dead", "--kind", "k0", "--limit", "2", "--after", after, "--json")), &got))
		for _, one := range got.Jobs {
			seen = append(seen, one.ID)
		}
		if got.Next == nil {
			break
		}
		after = *got.Next
	}
	assert.Equal(t, []string{"j0", "j2", "j4", "j6", "j8"}, seen)
}

func TestDeadShowsWhyAndCounts(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.kill(t, errors.New("bank \x1b[31mdown\nagain"), job("a"), job("b"))
	s.put(t, later("c"))
	s.ok(t, "bury", "c", "--reason", "wait for the bank")
	out := s.ok(t, "dead")
	assert.Equal(t, []string{"a", "b", "c"}, firsts(out))
	assert.Contains(t, out, "bank ␛[31mdown again")
	assert.Equal(t, []string{"c"}, firsts(s.ok(t, "dead", "--class", "buried-by-hand")))
	assert.Equal(t, []string{"a", "b"}, firsts(s.ok(t, "dead", "--reason-has", "down", "--newer-than", "1h")))
	assert.Contains(t, s.ok(t, "dead", "--older-than", "1h"), "No jobs in dead")
	var got summaryJSON
	require.NoError(t, json.Unmarshal([]byte(s.ok(t, "dead", "--summary", "--json")), &got))
	assert.Equal(t, 3, got.Jobs)
	assert.Equal(t, []any{"refund.pay", "discarded", 2}, []any{got.Groups[0].Kind, got.Groups[0].Class, got.Groups[0].Jobs})
	assert.Contains(t, s.ok(t, "dead", "--summary"), "buried-by-hand")
}

func TestShowTellsEverythingOfAJob(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	item := job("a")
	item.Headers, item.MaxRetries = map[string]string{"tenant": "acme", "raw": "\xff"}, new(3)
	item.Payload = []byte("{\n\t\"x\": \"\x1b\"}")
	s.kill(t, errors.New("why not"), item)
	out := s.ok(t, "show", "a")
	for _, part := range []string{"refund.pay", "dead since", "discarded", "1 failures, 0 expiries, 0 redrives", "max retries 3", "tenant=acme", "raw=\ufffd", "attempt 1", "why not", "{\n\t\"x\": \"␛\"}"} {
		assert.Contains(t, out, part)
	}
	assert.Equal(t, string(item.Payload), s.ok(t, "show", "a", "--payload"), "to the byte")
	var got jobJSON
	require.NoError(t, json.Unmarshal([]byte(s.ok(t, "show", "a", "--json")), &got))
	assert.Equal(t, string(item.Payload), *got.Payload)
	code, _, errOut := s.run(t, "show", "nobody")
	assert.Equal(t, exitFailure, code)
	assert.Contains(t, errOut, "has no job nobody")

	p, err := keys.New(s.prefix, s.queue, 0)
	require.NoError(t, err)
	s.put(t, job("odd"))
	require.NoError(t, redistest.Client(t).HSet(t.Context(), p.Key("jobs"), "odd", "\x00\x01").Err())
	out = s.ok(t, "show", "odd")
	assert.Contains(t, out, "(undecodable)")
	assert.Contains(t, out, "00 01")
}

func TestJobsAreManagedByTheirIDs(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.put(t, later("a"), later("b"), later("c"), job("running"))
	batch, err := s.q.Claim(t.Context(), 1, nil)
	require.NoError(t, err)
	assert.Equal(t, "a  rescheduled\nb  rescheduled\n", s.ok(t, "reschedule", "a", "b", "--delay", "3h"))
	assert.InDelta(t, 3*time.Hour, s.look(t, "b").In, float64(time.Minute))
	assert.Equal(t, "a  promoted\n", s.ok(t, "promote", "a"))
	assert.LessOrEqual(t, s.look(t, "a").In, time.Duration(0))
	assert.Equal(t, "b  buried\n", s.ok(t, "bury", "b", "--reason", "asked"))
	code, out, errOut := s.run(t, "promote", "b", "c", "nobody", "running")
	assert.Equal(t, exitFailure, code)
	assert.Equal(t, "c  promoted\n", out)
	for _, part := range []string{"b  it is in dead", "nobody  no such job", "running  it is in processing", "3 of 4 jobs were left as they are"} {
		assert.Contains(t, errOut, part)
	}
	assert.Equal(t, "a  would be cancelled in due\n", s.ok(t, "cancel", "a", "--dry-run"))
	var got byIDJSON
	require.NoError(t, json.Unmarshal([]byte(s.ok(t, "cancel", "a", "running", "--json")), &got))
	assert.Equal(t, []outcomeJSON{{ID: "a", Done: true, Result: "cancelled"}, {ID: "running", Done: true, Result: "cancelling"}}, got.Jobs)
	require.NoError(t, batch.Jobs[0].Release(t.Context()))
	assert.Equal(t, reliable.Nowhere, s.look(t, "running").Place)
}

func TestRedrivePutsBackWhatIsNamedOrWanted(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for i := range 10 {
		item := job(fmt.Sprint("j", i))
		item.Kind = fmt.Sprint("k", i%2)
		s.kill(t, errors.New("why"), item)
	}
	assert.Equal(t, "5 jobs would be redriven\n", s.ok(t, "redrive", "--all", "--kind", "k1", "--dry-run"))
	assert.Equal(t, "10 jobs would be redriven\n", s.ok(t, "redrive", "--all", "--dry-run"))
	assert.Equal(t, "1 jobs redriven\n", s.ok(t, "redrive", "j1"))
	code, out, errOut := s.run(t, "redrive", "j1", "j3", "nobody")
	assert.Equal(t, exitFailure, code)
	assert.Equal(t, "1 jobs redriven, 2 were not in dead any more\n", out)
	assert.Contains(t, errOut, "j1  it is in due\nnobody  no such job there\n")
	assert.Equal(t, "3 jobs redriven\n", s.ok(t, "redrive", "--all", "--kind", "k1", "--batch", "2"))
	var got passageJSON
	require.NoError(t, json.Unmarshal([]byte(s.ok(t, "redrive", "--all", "--json")), &got))
	assert.Equal(t, passageJSON{Queue: s.queue, Done: 5}, got)
	assert.EqualValues(t, 10, s.stats(t).Due)
	assert.Equal(t, "0 jobs redriven\n", s.ok(t, "redrive", "--all"), "run again")
}

func TestARateBoundsHowManyJobsComeBack(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for i := range 8 {
		s.kill(t, errors.New("why"), job(fmt.Sprint("j", i)))
	}
	began := time.Now()
	assert.Equal(t, "8 jobs redriven\n", s.ok(t, "redrive", "--all", "--rate", "20"))
	assert.GreaterOrEqual(t, time.Since(began), 250*time.Millisecond)
}

func TestARedriveThatIsInterruptedSaysHowFarItIs(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for i := range 6 {
		s.kill(t, errors.New("why"), job(fmt.Sprint("j", i)))
	}
	p := launch(t, nil, s.args(serverURL(t), "redrive", s.queue, "--all", "--rate", "0.5")...)
	require.Eventually(t, func() bool { return s.stats(t).Due == 1 }, within, time.Millisecond)
	p.cancel(errors.New("signal: interrupt"))
	assert.Equal(t, exitFailure, p.wait(t))
	assert.Equal(t, "1 jobs redriven\n", p.out.String())
	assert.Contains(t, p.err.String(), "stopped: signal: interrupt")
	assert.Contains(t, p.err.String(), "run it again to go on")
	assert.Equal(t, "5 jobs redriven\n", s.ok(t, "redrive", "--all"))
}

func TestPurgeDeletesOnlyWhatWasSaid(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.kill(t, errors.New("why"), job("a"), job("b"), job("c"))
	s.put(t, later("due"))
	code, _, errOut := s.run(t, "purge", "a")
	assert.Equal(t, exitUsage, code)
	assert.Contains(t, errOut, "want --yes, or --dry-run")
	assert.Equal(t, "3 jobs would be purged\n", s.ok(t, "purge", "--all", "--dry-run"))
	assert.Equal(t, "1 jobs would be purged\n", s.ok(t, "purge", "a", "--dry-run"))
	assert.EqualValues(t, 3, s.stats(t).Dead)
	assert.Equal(t, "1 jobs purged\n", s.ok(t, "purge", "a", "--yes"))
	assert.Equal(t, "0 jobs purged\n", s.ok(t, "purge", "--all", "--class", "no-handler", "--yes"))
	assert.Equal(t, "2 jobs purged\n", s.ok(t, "purge", "--all", "--yes"))
	assert.Equal(t, "1 jobs purged\n", s.ok(t, "purge", "due", "--place", "due", "--yes"))
	assert.Zero(t, s.stats(t).Records)
}

func TestEditChangesThePayloadAndRedrives(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.kill(t, errors.New("why"), job("a"))
	s.put(t, later("due"))
	assert.Equal(t, "a  edited\n", s.ok(t, "edit", "a", "new"))
	assert.Equal(t, []any{reliable.Dead, "new"}, []any{s.look(t, "a").Place, string(s.look(t, "a").Payload)})
	assert.Equal(t, "due  edited\n", s.ok(t, "edit", "due", "--header", "x=y=z"))
	assert.Equal(t, map[string]string{"x": "y=z"}, s.look(t, "due").Headers)
	s.ok(t, "edit", "due", "--no-headers")
	assert.Empty(t, s.look(t, "due").Headers)
	code, out, errOut := feed(t, strings.NewReader("\x00\xff"), s.args(serverURL(t), "edit", s.queue, "a", "-", "--redrive")...)
	require.Zero(t, code, errOut)
	assert.Equal(t, "a  edited and redriven\n", out)
	info := s.look(t, "a")
	assert.Equal(t, []any{reliable.Due, "\x00\xff", 1, 0}, []any{info.Place, string(info.Payload), info.Redrives, info.Failures})
	s.ok(t, "edit", "a", "")
	assert.Empty(t, s.look(t, "a").Payload)
	for _, one := range []struct {
		args []string
		want string
	}{
		{[]string{"a", "x", "--redrive"}, "job a is in due"},
		{[]string{"nobody", "x"}, "there is no job nobody"},
		{[]string{"a", strings.Repeat("x", 50), "--payload-limit", "49"}, "want at most 49"},
	} {
		code, _, errOut := s.run(t, "edit", one.args...)
		assert.Equal(t, exitFailure, code)
		assert.Contains(t, errOut, one.want)
	}
	_, err := s.q.Cancel(context.Background(), "a", "due")
	require.NoError(t, err)
}

func TestAMisspeltQueueIsToldWithThoseThatAreKnown(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.put(t, later("a"))
	for _, args := range [][]string{
		{"list", "x"}, {"dead", "x"}, {"dead", "x", "--summary"}, {"show", "x", "a"}, {"promote", "x", "a"}, {"redrive", "x", "--all"},
		{"purge", "x", "--all", "--yes"}, {"export", "x"}, {"edit", "x", "a", "p"},
	} {
		code, _, errOut := invoke(t, nil, s.args(serverURL(t), args...)...)
		assert.Equal(t, exitFailure, code, args)
		assert.Contains(t, errOut, "known are: "+s.queue, args)
	}
}

func TestWrongUsageOfTheCommandsAboutJobs(t *testing.T) {
	t.Parallel()
	for _, one := range []struct {
		args []string
		want string
	}{
		{[]string{"list", "q", "--place", "nowhere"}, "want one of due, processing, dead, done"},
		{[]string{"list", "q", "--class", "discarded"}, "--class is for dead jobs"},
		{[]string{"list", "q", "--limit", "0"}, "want 1 or more"},
		{[]string{"list", "q", "--after", "x"}, "want one that an earlier listing told"},
		{[]string{"dead", "q", "--class", "odd"}, "want one of discarded"},
		{[]string{"dead", "q", "--older-than", "-1h"}, "want more than 0"},
		{[]string{"dead", "q", "--summary", "--after", "5/a"}, "--summary counts all"},
		{[]string{"show", "q"}, "accepts 2 arg"},
		{[]string{"show", "q", "a", "--payload", "--json"}, "want one of them"},
		{[]string{"reschedule", "q", "a"}, "--delay is missing"},
		{[]string{"bury", "q", "a"}, "--reason is missing"},
		{[]string{"redrive", "q"}, "want either IDs, or --all"},
		{[]string{"redrive", "q", "a", "--all"}, "want either IDs, or --all"},
		{[]string{"redrive", "q", "a", "--kind", "k"}, "are for --all"},
		{[]string{"redrive", "q", "--all", "--rate", "-1"}, "want 0 or more"},
		{[]string{"redrive", "q", "--all", "--batch", "1001"}, "want 1 to 1000"},
		{[]string{"edit", "q", "a"}, "there is nothing to change"},
		{[]string{"edit", "q", "a", "x", "--file", "f"}, "want one of a payload and --file"},
		{[]string{"edit", "q", "a", "--header", "x"}, "want name=value"},
		{[]string{"edit", "q", "a", "--header", "x=1", "--no-headers"}, "want one of them"},
		{[]string{"export", "q", "a", "--kind", "k"}, "want either IDs or flags"},
		{[]string{"export", "q", "--place", "processing"}, "want one of dead, due"},
		{[]string{"cancel", "q", "a", "--timeout", "0s"}, "want more than 0"},
		{[]string{"list", "a{b}"}, "queue name"},
	} {
		code, out, errOut := invoke(t, nil, one.args...)
		assert.Equal(t, exitUsage, code, one.args)
		assert.Empty(t, out, one.args)
		assert.Contains(t, errOut, one.want, one.args)
	}
}
