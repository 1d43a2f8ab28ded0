package cases

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/wire"
	"github.com/leaseq/leaseq/reliable"
)

// awkwardPayloads are payloads that change when something between producer and handler takes them for JSON, for
// numbers, for text, or for something of its own.
func awkwardPayloads(t testing.TB) map[string][]byte {
	everyByte := make([]byte, 256)
	for i := range everyByte {
		everyByte[i] = byte(i)
	}
	envelope, err := wire.Append(nil, &wire.Envelope{Kind: "inner", Payload: everyByte, EnqueuedAt: time.Now()})
	require.NoError(t, err)
	return map[string][]byte{
		"integer over 2^53 in a list": []byte(`[130775545883395173]`),
		"integer over 2^53":           []byte(`9007199254740993`),
		"empty list in an object":     []byte(`{"a":[]}`),
		"empty object":                []byte(`{}`),
		"empty list":                  []byte(`[]`),
		"number beyond a double":      []byte(`1e400`),
		"nested 1,001 deep":           []byte(strings.Repeat("[", 1001) + strings.Repeat("]", 1001)),
		"objects nested 1,001 deep":   []byte(strings.Repeat(`{"a":`, 1001) + "1" + strings.Repeat("}", 1001)),
		"keys twice":                  []byte(`{"a":1,"a":2,"a":1}`),
		"the word null":               []byte(`null`),
		"key order":                   []byte(`{"z":1,"a":2,"m":3}`),
		"trailing spaces":             []byte("{\"a\": 1}  \t \n  "),
		"leading spaces":              []byte("  \n {}"),
		"float texts":                 []byte(`[1.0,-0,1E5,0.1000,100000000000000000000]`),
		"escapes":                     []byte(`{"a":"\u0000\/\ud83d\ude00\ud800"}`),
		"msgpack":                     {0x83, 0xa1, 'a', 0xcb, 0x3f, 0xf0, 0, 0, 0, 0, 0, 0, 0xa1, 'b', 0xcf, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xa1, 'c', 0xc4, 2, 0, 0xff},
		"protobuf":                    {0x08, 0x96, 0x01, 0x12, 0x03, 0xe2, 0x82, 0xac, 0x19, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f, 0x22, 0x00},
		"all 256 byte values":         everyByte,
		"all of them many times":      slices.Repeat(everyByte, 300),
		"one NUL":                     {0},
		"line ends":                   []byte("\r\n\r\n\n\r"),
		"Redis protocol":              []byte("*1\r\n$7\r\nFLUSHDB\r\n"),
		"an envelope":                 envelope,
		"the stand-in for a record":   wire.Stub(),
		"a token":                     []byte("!1767225600000000:s:1"),
		"counters":                    []byte("3 2 1 - - -"),
		"not UTF-8":                   {0xe8, 0xff, 0xfe, 0xc0, 0x80, 0xed, 0xa0, 0x80},
		"nothing":                     nil,
	}
}

// awkwardIDs are IDs that read as numbers, as other IDs, or as parts of the protocol.
var awkwardIDs = []string{
	"9007199254740993", "9007199254740992", "1e400", "1e2", "100", "0x64", "-0", "0", "007", "7", "nan", "inf", "-inf",
	"(1", "[1", "+", "-", "@5", "!", "*", "?", "a b", " a", "a ", "{a}", "}{", "{", "}", "{}", "#", "a#1", "\"a\"", "'a'",
	"[130775545883395173]", `{"a":[]}`, "null", "true", "O\u0308", "\u00d6", "\u00a0", "\u2028", "\U0001f600",
	strings.Repeat("\u00fc", 128),
}

// A sent job is what was enqueued, for comparison at every stage.
type sent struct {
	item reliable.Item
	sum  [32]byte
	raw  string // the whole record as it lies in Redis
}

func awkwardJobs(t testing.TB) map[string]*sent {
	payloads := awkwardPayloads(t)
	jobs := map[string]*sent{}
	add := func(id string, payload []byte) {
		require.Nil(t, jobs[id], "%q is used twice", id)
		headers := map[string]string{"trace": "00-4bf92f3577b34da6a3ce929d0e0e4736-01", "ναμε": "\x00\xff" + id, "empty": "", "big": "9007199254740993"}
		jobs[id] = &sent{item: reliable.Item{Kind: "case:9007199254740993", ID: id, Payload: payload, Headers: headers}, sum: sha256.Sum256(payload)}
	}
	for name, payload := range payloads {
		add(name, payload)
	}
	for i, id := range awkwardIDs {
		name := slices.Sorted(maps.Keys(payloads))[i%len(payloads)]
		add(id, payloads[name])
	}
	return jobs
}

// same asserts that a job at some stage is still what was enqueued, bytes and metadata.
func (s *sent) same(t testing.TB, stage, kind string, payload []byte, headers map[string]string, at time.Time) {
	t.Helper()
	require.Equal(t, s.sum, sha256.Sum256(payload), "%s: payload of %q", stage, s.item.ID)
	require.Equal(t, s.item.Kind, kind, "%s: %q", stage, s.item.ID)
	require.Equal(t, s.item.Headers, headers, "%s: %q", stage, s.item.ID)
	require.Less(t, time.Since(at).Abs(), time.Hour, "%s: enqueue time of %q", stage, s.item.ID)
}

// stage asserts about all jobs of a place: record, payload, metadata and counters.
func (l *lane) stage(name string, jobs map[string]*sent, place reliable.Place, failures, expiries, redrives int) {
	l.t.Helper()
	ids := slices.Sorted(maps.Keys(jobs))
	raw, err := l.rdb.HMGet(l.t.Context(), l.keys.Key("jobs"), ids...).Result()
	require.NoError(l.t, err)
	infos, err := l.queue.Inspect(l.t.Context(), ids...)
	require.NoError(l.t, err)
	for i, id := range ids {
		s, info := jobs[id], infos[i]
		if s.raw == "" {
			s.raw, _ = raw[i].(string)
			require.NotEmpty(l.t, s.raw)
		}
		require.Equal(l.t, s.raw, raw[i], "%s: record of %q", name, id)
		require.Equal(l.t, place, info.Place, "%s: %q", name, id)
		s.same(l.t, name, info.Kind, info.Payload, info.Headers, info.EnqueuedAt)
		counters := []int{info.Failures, info.Expiries, info.Redrives}
		require.Equal(l.t, []int{failures, expiries, redrives}, counters, "%s: failures, expiries, redrives of %q", name, id)
	}
}

func (l *lane) claimSame(stage string, jobs map[string]*sent, attempt int) map[string]*reliable.Job {
	l.t.Helper()
	held := l.claimExactly(len(jobs))
	for id, job := range held {
		require.Contains(l.t, jobs, id)
		jobs[id].same(l.t, stage, job.Kind, job.Payload, job.Headers, job.EnqueuedAt)
		require.Equal(l.t, attempt, job.Attempt, "%s: %q", stage, id)
	}
	return held
}

func (l *lane) nackAll(held map[string]*reliable.Job) {
	l.t.Helper()
	for _, job := range held {
		require.NoError(l.t, job.Nack(l.t.Context(), reliable.RetryAfter(0, errors.New("not this time"))))
	}
}

func TestS53_EveryPayloadIsTheSameToTheByteAtEveryStage(t *testing.T) {
	t.Parallel()
	l := newLane(t, &reliable.QueueOptions{Lease: 50 * time.Millisecond, MaxRetries: limitOf(2)})
	jobs := awkwardJobs(t)
	for _, s := range jobs {
		l.enqueue(s.item)
	}
	n := len(jobs)
	l.stage("enqueued", jobs, reliable.Due, 0, 0, 0)
	held := l.claimSame("first claim", jobs, 1)
	l.stage("claimed", jobs, reliable.Processing, 0, 0, 0)
	l.nackAll(held)
	l.stage("nacked", jobs, reliable.Due, 1, 0, 0)
	l.nackAll(l.claimSame("second claim", jobs, 2))
	l.stage("nacked twice", jobs, reliable.Due, 2, 0, 0)
	l.claimSame("third claim", jobs, 3)
	l.sweepUntilMoved(n)
	l.stage("expired", jobs, reliable.Due, 2, 1, 0)
	l.nackAll(l.claimSame("fourth claim", jobs, 4))
	l.stage("dead", jobs, reliable.Dead, 3, 1, 0)
	for id := range jobs {
		results, err := l.queue.Redrive(t.Context(), id)
		require.NoError(t, err)
		require.NoError(t, results[0], "%q", id)
	}
	l.stage("redriven", jobs, reliable.Due, 0, 0, 1)
	held = l.claimSame("claim after redrive", jobs, 1)
	for _, job := range held {
		require.Equal(t, 1, job.Redrives)
		require.NoError(t, job.Ack(t.Context()))
	}
	l.nothingLeft(jobs)
	l.balanced(n)
}

// nothingLeft asserts that nothing of acked jobs is left.
func (l *lane) nothingLeft(jobs map[string]*sent) {
	l.t.Helper()
	for _, name := range []string{"due", "processing", "dead", "jobs", "leases", "counts", "errors"} {
		exists, err := l.rdb.Exists(l.t.Context(), l.keys.Key(name)).Result()
		require.NoError(l.t, err)
		require.Zero(l.t, exists, name)
	}
	require.EqualValues(l.t, len(jobs), l.stats().Counters["acked"])
}

func TestS53_AConsumersHandlerGetsTheBytesThatWereEnqueued(t *testing.T) {
	t.Parallel()
	l := newLane(t, &reliable.QueueOptions{Lease: 10 * time.Second})
	jobs := awkwardJobs(t)
	var items []reliable.Item
	for _, s := range jobs {
		items = append(items, s.item)
	}
	l.enqueue(items...)
	var mu sync.Mutex
	runs, wrong := map[string]int{}, []string(nil)
	stop := l.consume(func(_ context.Context, job *reliable.Job) error {
		mu.Lock()
		defer mu.Unlock()
		s := jobs[job.ID]
		if s == nil || s.sum != sha256.Sum256(job.Payload) || !maps.Equal(s.item.Headers, job.Headers) || job.Kind != s.item.Kind {
			wrong = append(wrong, job.ID)
		}
		if runs[job.ID]++; runs[job.ID] < 3 {
			return reliable.RetryAfter(0, fmt.Errorf("not in run %d", runs[job.ID]))
		}
		return nil
	}, nil)
	require.Eventually(t, func() bool { return l.stats().Counters["acked"] == int64(len(jobs)) }, time.Minute, 10*time.Millisecond)
	stop()
	require.Empty(t, wrong)
	require.EqualValues(t, 2*len(jobs), l.stats().Counters["nacked"])
	l.balanced(len(jobs))
}

// The scripts do not look into records, and have nothing with which they could write one anew.
func TestS53_NoScriptEncodesOrDecodesUserData(t *testing.T) {
	t.Parallel()
	codec := regexp.MustCompile(`\b(cjson|cmsgpack|struct|bit|loadstring|load|dofile)\b\s*[.(]`)
	found := 0
	for _, dir := range []string{"../../lease/lua", "../script/lua"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.lua"))
		require.NoError(t, err)
		require.NotEmpty(t, files)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Empty(t, codec.FindAllString(string(text), -1), file)
			found++
		}
	}
	require.Greater(t, found, 10)
}
