package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/netfault"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/lease"
	"github.com/leaseq/leaseq/reliable"
)

// everyByte is a payload that no text can be.
var everyByte = func() []byte {
	all := make([]byte, 256, 258)
	for i := range all {
		all[i] = byte(i)
	}
	return append(all, "\r\n"...)
}()

func TestEnqueueTakesThePayloadAsItIs(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	file := filepath.Join(t.TempDir(), "payload")
	require.NoError(t, os.WriteFile(file, everyByte, 0o600))
	for _, c := range []struct {
		args []string
		in   io.Reader
		want []byte
	}{
		{[]string{`{"id": "10086"}`}, nil, []byte(`{"id": "10086"}`)},
		{[]string{""}, nil, []byte{}},
		{[]string{"--file", file}, nil, everyByte},
		{[]string{"-"}, bytes.NewReader(everyByte), everyByte},
		{[]string{"-"}, strings.NewReader(""), []byte{}},
		{[]string{"--", "-5"}, nil, []byte("-5")},
	} {
		args := append([]string{"enqueue"}, s.args(serverURL(t), s.queue, "--kind", "order.close")...)
		code, out, errOut := feed(t, c.in, append(args, c.args...)...)
		require.Zero(t, code, errOut)
		id, ended := strings.CutSuffix(out, "\n")
		require.True(t, ended && len(id) == 26, out)
		job := s.look(t, id)
		assert.Equal(t, reliable.Due, job.Place)
		assert.Equal(t, "order.close", job.Kind)
		assert.Equal(t, string(c.want), string(job.Payload))
	}
	known, err := lease.Queues(t.Context(), redistest.Client(t), s.prefix)
	require.NoError(t, err)
	assert.Equal(t, []string{s.queue}, known)
}

func TestEnqueueSaysWhenAndWithWhatLimitsAndHeaders(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	at := time.Now().Add(48 * time.Hour).UTC().Truncate(time.Second)
	code, out, errOut := invoke(t, nil, s.args(serverURL(t), "enqueue", s.queue, "x", "--kind", "k", "--id", "close:1", "--at", at.Format(time.RFC3339),
		"--header", "tenant=acme", "--header", "note=a=b,c", "--max-retries", "0", "--max-expiries", "2", "--json")...)
	require.Zero(t, code, errOut)
	var got enqueuedJSON
	require.NoError(t, json.Unmarshal([]byte(out), &got))
	assert.Equal(t, enqueuedJSON{Queue: s.queue, ID: "close:1", Created: true}, got)
	job := s.look(t, "close:1")
	assert.Equal(t, at.UnixMilli(), job.At.UnixMilli())
	assert.Equal(t, map[string]string{"tenant": "acme", "note": "a=b,c"}, job.Headers)
	store, err := lease.NewStore(redistest.Client(t), s.queue, &lease.StoreOptions{Prefix: s.prefix})
	require.NoError(t, err)
	infos, err := store.Inspect(t.Context(), []string{"close:1"})
	require.NoError(t, err)
	assert.Equal(t, []int{0, 2}, []int{*infos[0].MaxRetries, *infos[0].MaxExpiries})

	code, out, errOut = invoke(t, nil, s.args(serverURL(t), "enqueue", s.queue, "x", "--kind", "k", "--delay", "90m")...)
	require.Zero(t, code, errOut)
	in := s.look(t, strings.TrimSpace(out)).In
	assert.True(t, in > 89*time.Minute && in <= 90*time.Minute+time.Second, in)
}

func TestADuplicateTellsWhereTheJobIsAndIsAFailureUnlessAccepted(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	rdb := redistest.Client(t)
	store := newStore(t, rdb, s.prefix, s.queue, time.Minute)
	enqueue(t, store, "dead", "processing")
	held := claim(t, store, 2)
	require.Equal(t, "dead", held[0].ID)
	settle(t, store, lease.Bury, &held[0])
	enqueue(t, store, "due")
	for _, place := range []string{"due", "processing", "dead"} {
		before := redistest.Dump(t, rdb, s.prefix, s.queue, "stats", "sessions", "holders", "fence")
		args := s.args(serverURL(t), "enqueue", s.queue, "new", "--kind", "k", "--id", place)
		code, out, errOut := invoke(t, nil, args...)
		assert.Equal(t, exitFailure, code)
		assert.Empty(t, out)
		assert.True(t, strings.HasPrefix(errOut, "reaper: queue "+s.queue+": job "+place+" exists already, in "+place), errOut)
		assert.Equal(t, 1, strings.Count(errOut, "\n"), errOut)
		code, out, errOut = invoke(t, nil, append(args, "--json")...)
		assert.Equal(t, exitFailure, code)
		assert.JSONEq(t, `{"queue":"`+s.queue+`","id":"`+place+`","created":false,"place":"`+place+`"}`, out)
		assert.Contains(t, errOut, "in "+place)
		code, out, errOut = invoke(t, nil, append(args, "--accept-duplicate")...)
		assert.Zero(t, code)
		assert.Equal(t, place+"\n", out)
		assert.Empty(t, errOut)
		assert.Equal(t, before, redistest.Dump(t, rdb, s.prefix, s.queue, "stats", "sessions", "holders", "fence"))
	}
	settle(t, store, lease.Ack, &held[1])
}

func TestADryRunOfOneJobSendsNothing(t *testing.T) {
	t.Parallel()
	code, out, errOut := invoke(t, nil, "enqueue", "orders", "x", "--kind", "k", "--dry-run", "--redis", "redis://127.0.0.1:1")
	assert.Zero(t, code, errOut)
	assert.Empty(t, out)
}

func TestWrongUsageOfEnqueueExitsWithTwo(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ args, want string }{
		{"", "accepts between 1 and 2 arg(s)"},
		{"orders", "there is no payload"},
		{"orders x", "--kind is missing"},
		{"a{b} x --kind k", `queue name "a{b}"`},
		{"orders x --kind k --file f", "want one of"},
		{"orders x --kind k --jsonl f", "want one of"},
		{"orders --kind k --file f --jsonl f", "want one of"},
		{"orders x --kind no/bl!nks", "kind"},
		{"orders x --kind k --delay 1m --at 2027-01-01T00:00:00Z", "want one of them"},
		{"orders x --kind k --delay -1m", "want 0 or more"},
		{"orders x --kind k --delay soon", `"soon"`},
		{"orders x --kind k --at tomorrow", "want a time as"},
		{"orders x --kind k --at 3027-01-01T00:00:00Z", "at most 100 years"},
		{"orders x --kind k --header tenant", "want name=value"},
		{"orders x --kind k --header =acme", "want name=value"},
		{"orders x --kind k --header a=1 --header a=2", "given twice"},
		{"orders x --kind k --max-retries -1", "MaxRetries is -1"},
		{"orders x --kind k --max-expiries many", "want a whole number"},
		{"orders x --kind k --payload-limit 0", "want 1 or more"},
		{"orders x --kind k --payload-limit 999999999999", "PayloadLimit"},
		{"orders x --kind k --timeout -1s", "want more than 0"},
		{"orders x --kind k --from-line 3", "are for --jsonl"},
		{"orders x --kind k --series s", "are for --jsonl"},
		{"orders --jsonl f --id x", "with --jsonl the lines say it"},
		{"orders --jsonl f --header a=b", "with --jsonl the lines say it"},
		{"orders --jsonl f --max-retries 0", "with --jsonl the lines say it"},
		{"orders --jsonl f --from-line 0", "want 1 or more"},
		{"orders --jsonl f --kind no!", "kind"},
	} {
		code, out, errOut := invoke(t, nil, append([]string{"enqueue"}, strings.Fields(c.args)...)...)
		assert.Equal(t, exitUsage, code, c.args)
		assert.Empty(t, out, c.args)
		assert.Contains(t, errOut, c.want, c.args)
	}
}

func TestEnqueueSaysWhyAPayloadCannotBeHad(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, c := range []struct {
		in   io.Reader
		args []string
		want string
	}{
		{nil, []string{"--file", filepath.Join(t.TempDir(), "none")}, "no such file"},
		{nil, []string{"--file", t.TempDir()}, "directory"},
		{io.MultiReader(strings.NewReader("some"), broken{}), []string{"-"}, "the pipe broke"},
		{bytes.NewReader(make([]byte, 1001)), []string{"-", "--payload-limit", "1000"}, "more than 1000 bytes"},
		{nil, []string{strings.Repeat("x", 1001), "--payload-limit", "1000"}, "1001 bytes"},
	} {
		code, out, errOut := feed(t, c.in, append(s.args(serverURL(t), "enqueue", s.queue, "--kind", "k"), c.args...)...)
		assert.Equal(t, exitFailure, code)
		assert.Empty(t, out)
		assert.Contains(t, errOut, c.want)
	}
	assert.Zero(t, s.stats(t).Counters["enqueued"])
}

// broken is an input that fails.
type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("the pipe broke") }

func TestThePublishedPayloadLimitIsTold(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	store := newStore(t, redistest.Client(t), s.prefix, s.queue, time.Minute)
	_, err := store.Publish(t.Context(), &lease.Policy{PayloadLimit: 10})
	require.NoError(t, err)
	code, _, errOut := invoke(t, nil, s.args(serverURL(t), "enqueue", s.queue, "01234567890", "--kind", "k")...)
	assert.Equal(t, exitFailure, code)
	assert.Contains(t, errOut, "payload of 11 bytes: want at most 10")
	assert.NotContains(t, errOut, "reached")
	_, err = store.Publish(t.Context(), &lease.Policy{MaxLength: new(0), MaxDelay: new(time.Hour)})
	require.NoError(t, err)
	for want, args := range map[string][]string{
		"was to be due in 2h0m0s: want at most 1h0m0s": {"--delay", "2h"}, "the queue is full: it may have 0 jobs": nil,
	} {
		code, _, errOut := invoke(t, nil, append(s.args(serverURL(t), "enqueue", s.queue, "0", "--kind", "k"), args...)...)
		assert.Equal(t, exitFailure, code)
		assert.Contains(t, errOut, want)
		assert.NotContains(t, errOut, "reached")
	}
	assert.Zero(t, s.stats(t).Due)
}

func TestALostReplyMakesNoSecondJob(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	proxy := redistest.Proxy(t, redistest.Addr(t))
	for i, action := range []netfault.Action{netfault.DropReply, netfault.DropRequest} {
		dropScript(proxy, "enqueue", action, 2)
		code, out, errOut := invoke(t, nil, s.args("redis://"+proxy.Addr(), "enqueue", s.queue, "x", "--kind", "k", "--timeout", "20s")...)
		require.Zero(t, code, errOut)
		assert.Equal(t, reliable.Due, s.look(t, strings.TrimSpace(out)).Place)
		assert.EqualValues(t, i+1, s.stats(t).Counters["enqueued"])
	}
	assert.EqualValues(t, 4, proxy.Dropped())
}

// dropScript drops the first n calls of a script, and passes all else.
func dropScript(proxy *netfault.Proxy, name string, action netfault.Action, n int) {
	sha := digest(name)
	proxy.Decide(func(cmd []string) netfault.Action {
		if len(cmd) > 1 && strings.EqualFold(cmd[0], "evalsha") && cmd[1] == sha && n > 0 {
			n--
			return action
		}
		return netfault.Pass
	})
}

// digest is what EVALSHA calls one of the scripts by.
func digest(name string) string {
	for _, one := range lease.Scripts() {
		if one.Name == name {
			return one.SHA()
		}
	}
	panic("no script " + name)
}

func TestAJobWhoseOutcomeStaysUnknownIsNamed(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	require.NoError(t, load(t))
	proxy := redistest.Proxy(t, redistest.Addr(t))
	sha := digest("enqueue")
	proxy.Decide(func(cmd []string) netfault.Action {
		if strings.EqualFold(cmd[0], "evalsha") && cmd[1] == sha {
			go proxy.Cut() // for good: the next try and the seal find nobody
			return netfault.DropReply
		}
		return netfault.Pass
	})
	code, out, errOut := invoke(t, nil, s.args("redis://"+proxy.Addr(), "enqueue", s.queue, "x", "--kind", "k", "--id", "close:1", "--timeout", "1s")...)
	assert.Equal(t, exitRedis, code)
	assert.Empty(t, out)
	assert.Contains(t, errOut, "it is not known whether job close:1 was made: with --id close:1 the same may be tried again")

	code, _, errOut = invoke(t, nil, s.args(serverURL(t), "enqueue", s.queue, "x", "--kind", "k", "--id", "close:1", "--accept-duplicate")...)
	assert.Zero(t, code, errOut)
	assert.EqualValues(t, 1, s.stats(t).Counters["enqueued"])
}

// load makes each call one EVALSHA.
func load(t *testing.T) error {
	rdb := redistest.Client(t)
	var errs []error
	for _, one := range lease.Scripts() {
		errs = append(errs, rdb.ScriptLoad(t.Context(), one.Source()).Err())
	}
	return errors.Join(errs...)
}

func TestEnqueueExitsWithThreeWhereRedisCannotBeReached(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"x"}, {"--jsonl", "-"}} {
		args = append([]string{"enqueue", "orders", "--kind", "k", "--redis", "redis://127.0.0.1:1", "--timeout", "500ms"}, args...)
		code, _, errOut := feed(t, strings.NewReader("{}\n"), args...)
		assert.Equal(t, exitRedis, code, args)
		assert.Contains(t, errOut, "cannot be reached")
		assert.Contains(t, errOut, "nothing was enqueued")
	}
}

func TestAnInterruptEndsTheWaitForAPayload(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"-"}, {"--jsonl", "-"}} {
		in, feeder := io.Pipe()
		ctx, cancel := context.WithCancelCause(t.Context())
		reading := make(chan struct{})
		go func() {
			_, _ = feeder.Write([]byte(" ")) // returns when it was read
			close(reading)
		}()
		go func() {
			<-reading
			cancel(errors.New("signal: interrupt"))
		}()
		code, _, errOut := feedUntil(t, ctx, in, append([]string{"enqueue", "orders", "--kind", "k", "--redis", "redis://127.0.0.1:1"}, args...)...)
		assert.Equal(t, exitFailure, code)
		assert.Contains(t, errOut, "signal: interrupt")
		assert.Contains(t, errOut, "nothing was enqueued")
		require.NoError(t, feeder.Close()) // ends the goroutine that reads
	}
}

func TestAConflictIsTreatedAsTheFlagSays(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	run := func(payload string, more ...string) (int, enqueuedJSON, string) {
		args := append([]string{"enqueue", s.queue, payload, "--kind", "k", "--id", "x", "--json"}, more...)
		code, out, errOut := invoke(t, nil, s.args(serverURL(t), args...)...)
		var got enqueuedJSON
		if out != "" {
			require.NoError(t, json.Unmarshal([]byte(out), &got))
		}
		return code, got, errOut
	}
	payload := func() string {
		info, err := s.q.Get(t.Context(), "x")
		require.NoError(t, err)
		return string(info.Payload)
	}
	code, got, errOut := run("one", "--on-conflict", "replace", "--not-after", "2099-01-31T08:00:00Z")
	require.Zero(t, code, errOut)
	assert.Equal(t, enqueuedJSON{Queue: s.queue, ID: "x", Created: true}, got)
	info, err := s.q.Get(t.Context(), "x")
	require.NoError(t, err)
	assert.Equal(t, time.Date(2099, 1, 31, 8, 0, 0, 0, time.UTC), info.NotAfter.UTC())
	code, _, errOut = run("two")
	assert.Equal(t, exitFailure, code)
	assert.Contains(t, errOut, "exists already, in due")
	code, got, _ = run("three", "--on-conflict", "keep")
	assert.Zero(t, code)
	assert.Equal(t, enqueuedJSON{Queue: s.queue, ID: "x", Place: reliable.Due}, got)
	assert.Equal(t, "one", payload())
	code, got, _ = run("four", "--on-conflict", "replace")
	assert.Zero(t, code)
	assert.Equal(t, enqueuedJSON{Queue: s.queue, ID: "x", Created: true, Replaced: true}, got)
	assert.Equal(t, "four", payload())
	for _, bad := range [][]string{{"--on-conflict", "ignore"}, {"--not-after", "tomorrow"}} {
		code, _, errOut := run("five", bad...)
		assert.Equal(t, exitUsage, code)
		assert.Contains(t, errOut, bad[0])
		assert.Contains(t, errOut, "want ")
	}
}
