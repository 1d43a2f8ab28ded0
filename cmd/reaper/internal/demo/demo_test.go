package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/redisproc"
	"github.com/leaseq/leaseq/internal/redistest"
)

// A page is what was written, safe to be read meanwhile. onWrite is called with all of it after each write.
type page struct {
	mu      sync.Mutex
	text    bytes.Buffer
	onWrite func(all string)
}

func (p *page) Write(b []byte) (int, error) {
	p.mu.Lock()
	p.text.Write(b)
	all := p.text.String()
	p.mu.Unlock()
	if p.onWrite != nil {
		p.onWrite(all)
	}
	return len(b), nil
}

func (p *page) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// gone says whether a process that this one has waited for is no more.
func gone(pid int) bool {
	p, err := os.FindProcess(pid)
	return err != nil || p.Signal(syscall.Signal(0)) != nil
}

// play runs a demonstration with --json, and asserts that it leaves nothing behind.
func play(t *testing.T, o options) (map[string]any, string) {
	t.Helper()
	var pids []int
	o.json, o.temp, o.onWorker = true, t.TempDir(), func(pid int) { pids = append(pids, pid) }
	var out, live page
	began := time.Now()
	require.NoError(t, run(t.Context(), &o, &out, &live), "%s", &live)
	assert.Less(t, time.Since(began), 30*time.Second)

	decoder := json.NewDecoder(strings.NewReader(out.String()))
	var object map[string]any
	require.NoError(t, decoder.Decode(&object))
	assert.False(t, decoder.More(), "more than one object: %s", &out)

	assert.Len(t, pids, workers+1, "three, and one in the killed one's place")
	for _, pid := range pids {
		assert.True(t, gone(pid), "worker %d is left", pid)
	}
	left, err := os.ReadDir(o.temp)
	require.NoError(t, err)
	assert.Empty(t, left)
	return object, live.String()
}

// assertBalanced asserts what a demonstration must show.
func assertBalanced(t *testing.T, object map[string]any) {
	t.Helper()
	number := func(name string) float64 {
		n, ok := object[name].(float64)
		require.True(t, ok, "%s is %v: want a number", name, object[name])
		return n
	}
	assert.EqualValues(t, 120, number("jobs"))
	assert.EqualValues(t, 119, number("acked"))
	assert.EqualValues(t, 1, number("dead"), "the poisonous one")
	assert.Zero(t, number("lost"))
	assert.EqualValues(t, 1, number("kills"))
	assert.Greater(t, number("deliveries"), number("jobs"))
	assert.GreaterOrEqual(t, number("expired"), 1.0)
	if canFreeze {
		assert.GreaterOrEqual(t, number("stale_refused"), 1.0)
	}
	assert.Equal(t, number("acked"), number("effects"), "each acked job has its own, and no other has one")
	assert.Zero(t, number("double_effects"))
	assert.GreaterOrEqual(t, number("in_doubt"), 1.0, "the kill is aimed inside an effect")
	doubts, _ := object["effects_in_doubt"].([]any)
	assert.Len(t, doubts, int(number("in_doubt")), "each is named")
	assert.GreaterOrEqual(t, number("recovery_ms_p50"), 0.0)
	assert.GreaterOrEqual(t, number("recovery_ms_max"), number("recovery_ms_p50"))
	assert.Empty(t, object["problems"])
	letters, _ := object["dead_letters"].([]any)
	require.Len(t, letters, 1)
	letter, _ := letters[0].(map[string]any)
	assert.Equal(t, "refund:R-20939", letter["id"])
	assert.Equal(t, "card refused: account closed", letter["reason"])
	assert.Contains(t, []any{4.0, 5.0, 6.0}, letter["attempts"], "four failures; the kill and the freeze may have hit it too")
}

func TestDemoBalancesOnAnOwnRedisServer(t *testing.T) {
	t.Parallel()
	if _, err := redisproc.Find(); err != nil {
		t.Skip(redistest.SkipReason)
	}
	object, live := play(t, options{})
	assertBalanced(t, object)
	assert.Equal(t, "redis-server", object["server"])
	found := regexp.MustCompile(`a redis-server \S+ of its own, at (127\.0\.0\.1:\d+)`).FindStringSubmatch(live)
	require.NotNil(t, found, live)
	conn, err := net.DialTimeout("tcp", found[1], time.Second)
	if err == nil {
		_ = conn.Close()
	}
	assert.Error(t, err, "the server still listens")
}

func TestDemoBalancesWithoutAnyRedis(t *testing.T) {
	t.Parallel()
	object, live := play(t, options{miniredis: true})
	assertBalanced(t, object)
	assert.Equal(t, "miniredis", object["server"])
	assert.Contains(t, live, "SIGKILL")
	assert.Contains(t, live, "It died inside the side effect of ")
	assert.Contains(t, live, "is in doubt")
	assert.Contains(t, live, "attempt 2")
	if canFreeze {
		assert.Contains(t, live, "SIGSTOP")
		assert.Contains(t, live, "comes late with")
	} else {
		assert.Contains(t, live, "left out")
	}
}

func TestDemoPrintsForPeopleAndLeavesNothingOnAGivenServer(t *testing.T) {
	t.Parallel()
	given := redistest.Options(t)
	shown := fmt.Sprintf("redis://%s/%d", given.Addr, given.DB)
	full := url.URL{Scheme: "redis", Host: given.Addr, Path: fmt.Sprint(given.DB)}
	if given.Password != "" {
		full.User = url.UserPassword(given.Username, given.Password)
	}
	var out, errOut page
	cmd := Command(&out, &errOut)
	cmd.SetArgs([]string{"--redis", full.String()})
	require.NoError(t, cmd.ExecuteContext(t.Context()), "%s", &out)
	text := out.String()
	for _, want := range []string{
		"the one given, " + shown, "SIGKILL", "The ledger, computed from", "late settles refused", "Interrupted in the middle",
		"Side effects per job", "In doubt: ", "double effects", "Dead letters", "What can still happen twice", "The ledger balances: 120 jobs = 119 acked + 1 dead",
	} {
		assert.Contains(t, text, want)
	}
	assert.NotContains(t, text, "\x1b", "no terminal, no escapes")
	assert.Empty(t, errOut.String())
	left, err := redistest.Client(t).Keys(t.Context(), keyPrefix+":*").Result()
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestInterruptedDemoLeavesNothing(t *testing.T) {
	t.Parallel()
	moment := "SIGSTOP" // the worst one: a process that stands still cannot end by itself
	if !canFreeze {
		moment = "SIGKILL"
	}
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var pids []int
	var out page
	live := page{onWrite: func(all string) {
		if strings.Contains(all, moment) {
			interrupt()
		}
	}}
	o := options{miniredis: true, json: true, temp: t.TempDir(), onWorker: func(pid int) { pids = append(pids, pid) }}
	err := run(ctx, &o, &out, &live)
	require.ErrorIs(t, err, errInterrupted, "%s", &live)
	assert.Empty(t, out.String(), "no ledger")
	assert.Len(t, pids, workers+1)
	for _, pid := range pids {
		assert.True(t, gone(pid), "worker %d is left", pid)
	}
	left, err := os.ReadDir(o.temp)
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestDemoKeepsTheFileWhenAsked(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	live := page{onWrite: func(all string) {
		if strings.Contains(all, "are up") {
			interrupt()
		}
	}}
	o := options{miniredis: true, keep: true, temp: t.TempDir()}
	require.ErrorIs(t, run(ctx, &o, &live, &live), errInterrupted)
	found := regexp.MustCompile(`the workers' file stays: (.*)\n`).FindStringSubmatch(live.String())
	require.NotNil(t, found, "%s", &live)
	lines, err := readLines(found[1])
	require.NoError(t, err)
	require.Len(t, lines, workers)
	for _, l := range lines {
		assert.Equal(t, isUp, l.Event)
	}
}
