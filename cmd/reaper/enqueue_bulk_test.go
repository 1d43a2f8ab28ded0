package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/netfault"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/lease"
	"github.com/leaseq/leaseq/reliable"
)

// jobLines writes a file of n lines that each say a job.
func jobLines(t *testing.T, n int) (path string) {
	t.Helper()
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, `{"kind":"mail","payload":{"n":%d}}`+"\n", i)
	}
	return lineFile(t, text.String())
}

func lineFile(t *testing.T, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "jobs.jsonl")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// bulkBooks runs a bulk and reads its books.
func bulkBooks(t *testing.T, args ...string) (code int, books bulkJSON, errOut string) {
	t.Helper()
	code, out, errOut := invoke(t, nil, append(args, "--json")...)
	decoder := json.NewDecoder(strings.NewReader(out))
	decoder.DisallowUnknownFields()
	require.NoError(t, decoder.Decode(&books), "%s%s", out, errOut)
	return code, books, errOut
}

func TestALineIsAJobAndTheNumbersAreExact(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	store := newStore(t, redistest.Client(t), s.prefix, s.queue, time.Minute)
	enqueue(t, store, "is dead", "is running")
	held := claim(t, store, 2)
	settle(t, store, lease.Bury, &held[0])
	path := lineFile(t, `{"kind":"a","payload":"text","id":"one"}
{"payload":{"x": 1}}

{"kind":"a","id":"is running"}
{"kind":"a","id":"is dead"}
{"kind":"a","id":"one"}
{"kind":"a","dealy":"1m"}
{"kind":"a","payload":"`+strings.Repeat("x", reliable.DefaultPayloadLimit+1)+`"}
{"kind":"a","payload":"`+strings.Repeat("x", maxLine)+`"}
{"kind":"a","payload_base64":"AAH/","delay":"1h","headers":{"h":"v"},"max_retries":3}`)

	args := s.args(serverURL(t), "enqueue", s.queue, "--jsonl", path, "--kind", "default")
	code, out, _ := invoke(t, nil, append(args, "--dry-run")...)
	assert.Equal(t, exitFailure, code)
	assert.Equal(t, "6 would be sent, 0 there already, 3 failed\n", out)
	assert.EqualValues(t, 2, s.stats(t).Counters["enqueued"], "nothing was sent")

	code, out, errOut := invoke(t, nil, args...)
	assert.Equal(t, exitFailure, code)
	assert.Equal(t, "3 created, 3 there already (due 1, processing 1, dead 1), 3 failed\n", out)
	lines := strings.Split(errOut, "\n")
	require.Len(t, lines, 5, errOut)
	assert.Equal(t, `line 7: field "dealy" is not known`, lines[0])
	assert.Contains(t, lines[1], "line 8: ")
	assert.Contains(t, lines[1], "524289 bytes")
	assert.Contains(t, lines[2], "line 9: the line has 4194329 bytes: at most 4194304 are allowed")
	assert.Equal(t, "reaper: 3 lines are wrong or were refused", lines[3])
	assert.EqualValues(t, 2+3, s.stats(t).Counters["enqueued"])

	assert.Equal(t, "text", string(s.look(t, "one").Payload))
	second := s.look(t, lineID("", 2, []byte(`{"payload":{"x": 1}}`)))
	assert.Equal(t, []string{"default", `{"x": 1}`}, []string{second.Kind, string(second.Payload)})
	last := s.look(t, lineID("", 10, []byte(`{"kind":"a","payload_base64":"AAH/","delay":"1h","headers":{"h":"v"},"max_retries":3}`)))
	assert.Equal(t, "\x00\x01\xff", string(last.Payload))
	assert.Equal(t, map[string]string{"h": "v"}, last.Headers)
	assert.Greater(t, last.In, 59*time.Minute)
	settle(t, store, lease.Ack, &held[1])
}

func TestTheSameFileMakesNoJobTwiceButALineThatWasAckedAgain(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	path := jobLines(t, 600)
	args := s.args(serverURL(t), "enqueue", s.queue, "--jsonl", path)
	code, books, errOut := bulkBooks(t, args...)
	require.Zero(t, code, errOut)
	assert.Equal(t, bulkJSON{Queue: s.queue, Created: 600, Duplicates: map[reliable.Place]int64{}, Certain: 600}, books)

	code, books, errOut = bulkBooks(t, args...)
	require.Zero(t, code, errOut)
	assert.Equal(t, bulkJSON{Queue: s.queue, Duplicates: map[reliable.Place]int64{reliable.Due: 600}, Certain: 600}, books)

	store := newStore(t, redistest.Client(t), s.prefix, s.queue, time.Minute)
	for _, job := range claim(t, store, 10) {
		settle(t, store, lease.Ack, &job)
	}
	_, books, _ = bulkBooks(t, args...)
	assert.Equal(t, []int64{10, 590}, []int64{books.Created, books.Duplicates[reliable.Due]}, "as the help says")

	_, books, _ = bulkBooks(t, append(args, "--from-line", "501")...)
	assert.Equal(t, []int64{0, 100}, []int64{books.Created, books.Duplicates[reliable.Due]})
	_, books, _ = bulkBooks(t, append(args, "--series", "another", "--from-line", "599")...)
	assert.EqualValues(t, 2, books.Created, "another series is other jobs")
	_, books, _ = bulkBooks(t, append(args, "--from-line", "601")...)
	assert.Equal(t, []int64{0, 600}, []int64{books.Created, books.Certain})
}

func TestLinesComeFromStandardInputToo(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	in, feeder := io.Pipe()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = feeder.Write([]byte("{\"id\":\"a\"}\n"))
		assert.Eventually(t, func() bool { return s.look(t, "a").Place == reliable.Due }, within, 5*time.Millisecond, "it does not wait for more lines")
		_, _ = feeder.Write([]byte("{\"id\":\"b\"}\n{\"id\":\"c\"}"))
		assert.NoError(t, feeder.Close())
	}()
	code, out, errOut := feed(t, in, s.args(serverURL(t), "enqueue", s.queue, "--jsonl", "-", "--kind", "k")...)
	<-ended
	require.Zero(t, code, errOut)
	assert.Equal(t, "3 created, 0 there already, 0 failed\n", out)
	assert.Equal(t, reliable.Due, s.look(t, "c").Place)
}

func TestNoReplyThatIsLostDoublesOrLosesALine(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	require.NoError(t, load(t))
	proxy := redistest.Proxy(t, redistest.Addr(t))
	sha, n := digest("enqueue"), 0
	proxy.Decide(func(cmd []string) netfault.Action {
		if len(cmd) > 1 && cmd[1] == sha {
			n++
			return []netfault.Action{netfault.DropReply, netfault.Pass, netfault.DropRequest, netfault.DropReply, netfault.Pass}[n%5]
		}
		return netfault.Pass
	})
	const lines = 3000
	code, books, errOut := bulkBooks(t, s.args("redis://"+proxy.Addr(), "enqueue", s.queue, "--jsonl", jobLines(t, lines))...)
	require.Zero(t, code, errOut)
	assert.Equal(t, bulkJSON{Queue: s.queue, Created: lines, Duplicates: map[reliable.Place]int64{}, Certain: lines}, books)
	assert.GreaterOrEqual(t, proxy.Dropped(), int64(10))
	assert.EqualValues(t, lines, s.stats(t).Counters["enqueued"])
	assert.EqualValues(t, lines, s.stats(t).Due)
}

// goOn is where the program says to go on.
func goOn(t *testing.T, errOut string) (line string) {
	t.Helper()
	match := regexp.MustCompile(`go on with --from-line (\d+)`).FindStringSubmatch(errOut)
	require.NotNil(t, match, errOut)
	return match[1]
}

func TestAnOutageThatIsTooLongSaysWhereToGoOn(t *testing.T) {
	t.Parallel()
	for _, action := range []netfault.Action{netfault.DropReply, netfault.DropRequest} {
		t.Run(action.String(), func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			require.NoError(t, load(t))
			proxy := redistest.Proxy(t, redistest.Addr(t))
			sha, n := digest("enqueue"), 0
			proxy.Decide(func(cmd []string) netfault.Action {
				if len(cmd) > 1 && cmd[1] == sha {
					if n++; n >= 3 {
						return action // the third batch, and every repeat
					}
				}
				return netfault.Pass
			})
			const lines = 1000
			path := jobLines(t, lines)
			code, books, errOut := bulkBooks(t, s.args("redis://"+proxy.Addr(), "enqueue", s.queue, "--jsonl", path, "--timeout", "1s")...)
			if action == netfault.DropReply {
				// Nobody drops the seal, which tells that the batch was made: each takes a second, and it goes on.
				assert.Equal(t, bulkJSON{Queue: s.queue, Created: lines, Duplicates: map[reliable.Place]int64{}, Certain: lines}, books, errOut)
				assert.Zero(t, code)
			} else {
				assert.Equal(t, exitRedis, code, errOut)
				assert.Equal(t, bulkJSON{Queue: s.queue, Created: 512, Duplicates: map[reliable.Place]int64{}, Certain: 512, Next: new(int64(513))}, books)
				assert.Equal(t, "513", goOn(t, errOut))
				proxy.Decide(nil)
				code, books, errOut = bulkBooks(t, s.args("redis://"+proxy.Addr(), "enqueue", s.queue, "--jsonl", path, "--from-line", "513")...)
				require.Zero(t, code, errOut)
				assert.EqualValues(t, lines-512, books.Created)
			}
			assert.EqualValues(t, lines, s.stats(t).Counters["enqueued"])
		})
	}
}

// Large lines go in more than one call a batch: what the first has made is certain.
func TestABatchOfSeveralCallsIsCertainUpToTheOneThatFailed(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	require.NoError(t, load(t))
	proxy := redistest.Proxy(t, redistest.Addr(t))
	sha := digest("enqueue")
	proxy.Decide(func(cmd []string) netfault.Action {
		// By what it carries and not by its number: on a busy machine the first call may need a repeat.
		if len(cmd) > 1 && cmd[1] == sha && slices.ContainsFunc(cmd, func(arg string) bool { return strings.Contains(arg, "latelate") }) {
			return netfault.DropRequest
		}
		return netfault.Pass
	})
	line := func(payload string) string { return `{"kind":"k","payload":"` + payload + "\"}\n" }
	early, late := line(strings.Repeat("early", 60_000)), line(strings.Repeat("late", 75_000))
	path := lineFile(t, "\n"+strings.Repeat(early, 13)+strings.Repeat(late, 7)) // 13 of them fit into one call
	code, books, errOut := bulkBooks(t, s.args("redis://"+proxy.Addr(), "enqueue", s.queue, "--jsonl", path, "--timeout", "5s")...)
	assert.Equal(t, exitRedis, code)
	assert.Equal(t, bulkJSON{Queue: s.queue, Created: 13, Duplicates: map[reliable.Place]int64{}, Certain: 14, Next: new(int64(15))}, books)
	assert.EqualValues(t, 13, s.stats(t).Counters["enqueued"])
	proxy.Decide(nil)
	code, books, errOut = bulkBooks(t, s.args("redis://"+proxy.Addr(), "enqueue", s.queue, "--jsonl", path, "--from-line", goOn(t, errOut))...)
	require.Zero(t, code, errOut)
	assert.EqualValues(t, 7, books.Created)
	assert.EqualValues(t, 20, s.stats(t).Counters["enqueued"])
}

func TestWhatCanNeverBeKnownIsNotSentAgain(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	require.NoError(t, load(t))
	rdb := redistest.Client(t)
	proxy := redistest.Proxy(t, redistest.Addr(t))
	sha, n := digest("enqueue"), 0
	proxy.Decide(func(cmd []string) netfault.Action {
		if len(cmd) > 1 && cmd[1] == sha {
			switch n++; n {
			case 2:
				return netfault.DropReply
			case 3: // the repeat finds that its session has gone, as after a failover
				assert.NoError(t, rdb.Del(context.Background(), s.key(t, 0, "sessions"), s.key(t, 0, "holders")).Err())
			}
		}
		return netfault.Pass
	})
	path := jobLines(t, 1000)
	code, books, errOut := bulkBooks(t, s.args("redis://"+proxy.Addr(), "enqueue", s.queue, "--jsonl", path)...)
	assert.Equal(t, exitRedis, code)
	assert.Equal(t, bulkJSON{Queue: s.queue, Created: 256, Duplicates: map[reliable.Place]int64{}, Unknown: 256, Certain: 256, Next: new(int64(257))}, books)
	assert.Contains(t, errOut, "the jobs of the next 256 lines were perhaps made")
	assert.Equal(t, "257", goOn(t, errOut))
	assert.EqualValues(t, 512, s.stats(t).Counters["enqueued"], "nothing is sent once more, and nothing behind it")

	code, books, errOut = bulkBooks(t, s.args(serverURL(t), "enqueue", s.queue, "--jsonl", path, "--from-line", "257")...)
	require.Zero(t, code, errOut)
	assert.Equal(t, []int64{488, 256}, []int64{books.Created, books.Duplicates[reliable.Due]})
	assert.EqualValues(t, 1000, s.stats(t).Counters["enqueued"])
}

func TestAServerWithoutMemoryStopsABulkAtABatch(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t, nil)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	proxy := redistest.Proxy(t, server.Addr())
	sha, n := digest("enqueue"), 0
	proxy.Decide(func(cmd []string) netfault.Action {
		if len(cmd) > 1 && cmd[1] == sha {
			if n++; n == 4 {
				assert.NoError(t, rdb.ConfigSet(context.Background(), "maxmemory", "1").Err())
			}
		}
		return netfault.Pass
	})
	path := jobLines(t, 1500)
	args := []string{"enqueue", "orders", "--jsonl", path, "--redis", "redis://" + proxy.Addr()}
	code, books, errOut := bulkBooks(t, args...)
	assert.Equal(t, exitFailure, code)
	assert.Contains(t, errOut, "OOM")
	assert.EqualValues(t, []int64{768, 768, 0}, []int64{books.Created, books.Certain, books.Unknown})
	require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", "0").Err())
	code, books, errOut = bulkBooks(t, append(args, "--from-line", goOn(t, errOut))...)
	require.Zero(t, code, errOut)
	assert.EqualValues(t, 1500-768, books.Created)
	redistest.CheckQueue(t, rdb, "leaseq", "orders")
}

func TestThePublishedLimitRefusesALineAndNotItsBatch(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	store := newStore(t, redistest.Client(t), s.prefix, s.queue, time.Minute)
	_, err := store.Publish(t.Context(), &lease.Policy{PayloadLimit: 10})
	require.NoError(t, err)
	path := lineFile(t, "{\"payload\":\"short\"}\n{\"payload\":\"longer than ten\"}\n{\"payload\":\"last\"}\n")
	code, out, errOut := invoke(t, nil, s.args(serverURL(t), "enqueue", s.queue, "--jsonl", path, "--kind", "k")...)
	assert.Equal(t, exitFailure, code)
	assert.Equal(t, "2 created, 0 there already, 1 failed\n", out)
	assert.Contains(t, errOut, "line 2: ")
}

func TestABulkSaysWhyItsFileCannotBeRead(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for path, want := range map[string]string{filepath.Join(t.TempDir(), "none"): "no such file", t.TempDir(): "is a directory"} {
		code, out, errOut := invoke(t, nil, s.args(serverURL(t), "enqueue", s.queue, "--jsonl", path)...)
		assert.Equal(t, exitFailure, code)
		assert.Empty(t, out)
		assert.Contains(t, errOut, want)
	}
	in := io.MultiReader(strings.NewReader("{\"kind\":\"k\"}\n"), broken{})
	code, out, errOut := feed(t, in, s.args(serverURL(t), "enqueue", s.queue, "--jsonl", "-")...)
	assert.Equal(t, exitFailure, code)
	assert.Equal(t, "1 created, 0 there already, 0 failed\n", out)
	assert.Contains(t, errOut, "cannot read on: the pipe broke")
	assert.Equal(t, "2", goOn(t, errOut))
}

func TestAnInterruptStopsABulkAfterTheBatchUnderWay(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	require.NoError(t, load(t))
	proxy := redistest.Proxy(t, redistest.Addr(t))
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	sha, n := digest("enqueue"), 0
	proxy.Decide(func(cmd []string) netfault.Action {
		if len(cmd) > 1 && cmd[1] == sha {
			if n++; n == 3 {
				cancel(errors.New("signal: interrupt")) // while the third is on its way
				return netfault.DropReply
			}
		}
		return netfault.Pass
	})
	const lines = 2000
	path := jobLines(t, lines)
	code, out, errOut := feedUntil(t, ctx, nil, s.args("redis://"+proxy.Addr(), "enqueue", s.queue, "--jsonl", path)...)
	assert.Equal(t, exitFailure, code)
	assert.Equal(t, "768 created, 0 there already, 0 failed\n", out)
	assert.Contains(t, errOut, "stopped: signal: interrupt")
	assert.Equal(t, "769", goOn(t, errOut))
	assert.EqualValues(t, 768, s.stats(t).Counters["enqueued"])
}
