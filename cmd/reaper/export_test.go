package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/lease"
	"github.com/leaseq/leaseq/reliable"
)

// stored is what Redis holds of a site's jobs.
func (s *site) stored(t *testing.T) map[string]string {
	t.Helper()
	dump, short := redistest.Dump(t, redistest.Client(t), s.prefix, s.queue), map[string]string{}
	for name, value := range dump {
		switch name = name[strings.LastIndexByte(name, ':')+1:]; name {
		case "due", "dead", "jobs", "counts", "errors":
			short[name] = value
		}
	}
	return short
}

// assorted fills a queue with jobs that are hard to keep as they are.
func assorted(t *testing.T, s *site) {
	t.Helper()
	item := job("plain")
	item.Headers, item.MaxRetries = map[string]string{"tenant": "acme", "raw": "\xff\x00"}, new(3)
	s.kill(t, errors.New("why \"not\" <&>"), item)
	raw := job("raw")
	raw.Payload = []byte("\x00\xff\n\r\u2028")
	s.kill(t, errors.New("first"), raw)
	_, err := s.q.Redrive(t.Context(), "raw")
	require.NoError(t, err)
	batch, err := s.q.Claim(t.Context(), 1, nil)
	require.NoError(t, err)
	require.NoError(t, batch.Jobs[0].Nack(t.Context(), reliable.RetryAfter(0, errors.New("second"))))
	batch, err = s.q.Claim(t.Context(), 1, nil)
	require.NoError(t, err)
	store := newStore(t, redistest.Client(t), s.prefix, s.queue, time.Minute)
	require.NoError(t, batch.Jobs[0].Release(t.Context()))
	held := claim(t, store, 1)
	_, err = store.Settle(t.Context(), []lease.Verdict{{Op: lease.Bury, ID: "raw", Token: held[0].Token, Reason: "third", Stack: "a stack\n\n\xfe"}})
	require.NoError(t, err)
	empty := job("empty")
	empty.Payload = nil
	s.kill(t, errors.New("why"), empty)
	p, err := keys.New(s.prefix, s.queue, 0)
	require.NoError(t, err)
	rdb := redistest.Client(t)
	s.kill(t, errors.New("why"), job("odd"))
	require.NoError(t, rdb.HSet(t.Context(), p.Key("jobs"), "odd", "\x7fnot an envelope").Err())
	s.put(t, job("bare"))
	require.NoError(t, rdb.HDel(t.Context(), p.Key("jobs"), "bare").Err())
	s.ok(t, "bury", "bare", "--reason", "it has no record")
}

func TestWhatIsExportedIsImportedToTheByte(t *testing.T) {
	t.Parallel()
	from, to := newSite(t), newSite(t)
	assorted(t, from)
	from.put(t, later("due"))
	file := filepath.Join(t.TempDir(), "dead.jsonl")
	code, out, errOut := from.run(t, "export", "--out", file)
	require.Zero(t, code, errOut)
	assert.Empty(t, out)
	assert.Contains(t, errOut, "5 jobs exported")
	due := from.ok(t, "export", "--place", "due")
	assert.Equal(t, 1, strings.Count(due, "\n"))
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Contains(t, string(text), `why \"not\" <&>`)
	assert.Contains(t, string(text), `"payload_base64":"AP8KDeKAqA=="`)

	assert.Equal(t, "5 would be sent, 0 there already, 0 failed\n", to.ok(t, "import", file, "--dry-run"))
	assert.Empty(t, to.stored(t))
	assert.Equal(t, "5 imported, 0 there already, 0 failed\n", to.ok(t, "import", file))
	code, out, errOut = feed(t, strings.NewReader(due), to.args(serverURL(t), "import", to.queue, "-")...)
	require.Zero(t, code, errOut)
	assert.Equal(t, "1 imported, 0 there already, 0 failed\n", out)
	assert.Equal(t, from.stored(t), to.stored(t))
	assert.Equal(t, "0 imported, 5 there already (dead 5), 0 failed\n", to.ok(t, "import", file))
	assert.Equal(t, "5 jobs redriven\n", to.ok(t, "redrive", "--all"))
	assert.Equal(t, "0 imported, 5 there already (due 5), 0 failed\n", to.ok(t, "import", file))

	code, _, errOut = from.run(t, "export", "--out", file)
	assert.Equal(t, exitFailure, code)
	assert.Contains(t, errOut, "--out", "a file that is there is not overwritten")
	code, out, _ = from.run(t, "export", "plain", "nobody")
	assert.Equal(t, exitFailure, code)
	assert.Equal(t, 1, strings.Count(out, "\n"))
}

func TestLinesThatAreNoneAreToldAndTheOthersImported(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	good := `{"id":"a","place":"dead","at_ms":5,"kind":"k","payload":"p","enqueued_us":7,"failures":1,"expiries":0,"redrives":2}`
	bad := []string{
		"nonsense", "[]", `{"id":"b"}`, strings.Replace(good, `"at_ms":5`, `"at_ms":0`, 1), strings.Replace(good, `"k"`, `"no kind"`, 1),
		strings.Replace(good, `"dead"`, `"processing"`, 1), strings.Replace(good, `"failures":1`, `"failures":-1`, 1),
		strings.Replace(good, `"payload":"p"`, `"payload_base64":"?"`, 1), strings.Replace(good, `"payload":"p"`, `"payload":"p","record_base64":""`, 1),
		strings.Replace(good, `"kind"`, `"kin"`, 1), good + "{}", "\xff", strings.Replace(good, `"a"`, `""`, 1),
	}
	code, out, errOut := feed(t, strings.NewReader(strings.Join(bad, "\n")+"\n\n"+good), s.args(serverURL(t), "import", s.queue, "-")...)
	assert.Equal(t, exitFailure, code)
	assert.Equal(t, "1 imported, 0 there already, 13 failed\n", out)
	assert.Len(t, regexp.MustCompile(`(?m)^line \d+: `).FindAllString(errOut, -1), len(bad), errOut)
	info := s.look(t, "a")
	assert.Equal(t, []any{reliable.Dead, "p", 1, 2, time.UnixMilli(5).UTC()}, []any{info.Place, string(info.Payload), info.Failures, info.Redrives, info.At.UTC()})
}

// A person who has never seen the tool finds a dead refund, reads why it died, mends its payload and has it run again.
// docs/operate.md shows the same three commands.
func TestThreeCommandsFindMendAndRedriveADeadRefund(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "operate.md"))
	require.NoError(t, err)
	s := newSite(t)
	item := job("refund:10086")
	item.Payload = []byte(`{"order":"10086","amount":"12.50"}`)
	mux := reliable.NewMux()
	paid := make(chan int, 1)
	require.NoError(t, reliable.Handle(mux, func(_ context.Context, _ *reliable.Job, r refund) error {
		paid <- r.Amount
		return nil
	}, nil))
	stop := consume(t, s.q, mux)
	s.put(t, item)
	require.Eventually(t, func() bool { return s.stats(t).Dead == 1 }, within, 5*time.Millisecond)

	var commands [][]string
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "$ reaper "); ok && len(commands) < 3 {
			commands = append(commands, shellWords(rest))
		}
	}
	require.Len(t, commands, 3)
	for i, parts := range [][]string{
		{"refund:10086", "bad-payload", "cannot unmarshal string"}, {`"amount":"12.50"`, "bad-payload", "attempt 1"}, {"refund:10086  edited and redriven"},
	} {
		args := append([]string{}, commands[i]...)
		require.Equal(t, "refunds", args[1], "the queue's name in the document")
		args[1] = s.queue
		code, out, errOut := invoke(t, nil, s.args(serverURL(t), args...)...)
		require.Zero(t, code, errOut)
		for _, part := range parts {
			assert.Contains(t, out, part, "%q", commands[i])
		}
	}
	select {
	case amount := <-paid:
		assert.Equal(t, 1250, amount)
	case <-time.After(within):
		t.Fatal("the refund was not run again")
	}
	stop()
	assert.Zero(t, s.stats(t).Records)
}

type refund struct {
	Order  string `json:"order"`
	Amount int    `json:"amount"`
}

func (refund) Kind() string { return "refund.pay" }

// consume runs a consumer until stop is called.
func consume(t *testing.T, q *reliable.Queue, h reliable.Handler) (stop func()) {
	t.Helper()
	c, err := reliable.NewConsumer(q, h, nil)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	return func() {
		cancel()
		require.NoError(t, <-ended)
	}
}

// shellWords splits a line as a shell does, as far as the documents go.
func shellWords(line string) (words []string) {
	for i, part := range strings.Split(strings.TrimSpace(line), "'") {
		if i%2 == 1 {
			words = append(words, part)
		} else {
			words = append(words, strings.Fields(part)...)
		}
	}
	return words
}
