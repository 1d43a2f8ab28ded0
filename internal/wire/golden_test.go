package wire

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Golden files are records that some version of this program may have left in a Redis: they are never changed, only
// added. The flag writes those that are missing and leaves alone those that exist.
var writeGolden = flag.Bool("write-missing-golden", false, "write golden files that do not exist yet")

const goldenDir = "../../testdata/wire/v1"

// description is what a .json beside a .bin holds: what the .bin has to decode to.
type description struct {
	About      string            `json:"about"`
	Kind       string            `json:"kind"`
	Enqueued   string            `json:"enqueued"`    // RFC 3339 in UTC, six digits of fraction
	EnqueuedUs int64             `json:"enqueued_us"` // the same in microseconds since 1970
	Headers    map[string]string `json:"headers"`
	Payload    []byte            `json:"payload_base64"`
}

const microRFC3339 = "2006-01-02T15:04:05.000000Z07:00"

type golden struct {
	name  string
	bytes []byte
	want  description
}

// goldenFiles reads all golden files.
func goldenFiles(t testing.TB) []golden {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(goldenDir, "*.bin"))
	require.NoError(t, err)
	var all []golden
	for _, path := range paths {
		g := golden{name: strings.TrimSuffix(filepath.Base(path), ".bin")}
		g.bytes, err = os.ReadFile(path)
		require.NoError(t, err)
		text, err := os.ReadFile(strings.TrimSuffix(path, ".bin") + ".json")
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(text, &g.want))
		all = append(all, g)
	}
	return all
}

func TestGoldenFilesDecodeForEver(t *testing.T) {
	t.Parallel()
	all := goldenFiles(t)
	require.GreaterOrEqual(t, len(all), len(goldenEnvelopes()), "golden files are only ever added")
	for _, g := range all {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			e, err := Decode(g.bytes)
			require.NoError(t, err)
			assert.Equal(t, g.want.Kind, e.Kind)
			assert.Equal(t, g.want.EnqueuedUs, e.EnqueuedAt.UnixMicro())
			assert.Equal(t, g.want.Enqueued, e.EnqueuedAt.Format(microRFC3339))
			assert.Equal(t, len(g.want.Headers), len(e.Headers))
			for name, value := range g.want.Headers {
				assert.Equal(t, value, e.Headers[name], "header %q", name)
			}
			assert.Equal(t, string(g.want.Payload), string(e.Payload))
			if e.Kind == "" {
				require.Equal(t, Stub(), g.bytes)
				return
			}
			require.Equal(t, g.bytes, encode(t, &e))
		})
	}
}

// Not parallel, so that files are written before another test reads them.
func TestEveryGoldenEnvelopeHasItsFile(t *testing.T) {
	for name, g := range goldenEnvelopes() {
		record := Stub()
		if g.e.Kind != "" {
			record = encode(t, &g.e)
		}
		if *writeGolden {
			writeNew(t, name+".bin", record)
			writeNew(t, name+".json", describe(t, &g))
		}
		stored, err := os.ReadFile(filepath.Join(goldenDir, name+".bin"))
		require.NoError(t, err)
		assert.Equal(t, stored, record, name)
	}
}

func describe(t *testing.T, g *goldenEnvelope) []byte {
	t.Helper()
	d := description{
		About:      g.about,
		Kind:       g.e.Kind,
		Enqueued:   g.e.EnqueuedAt.Format(microRFC3339),
		EnqueuedUs: g.e.EnqueuedAt.UnixMicro(),
		Headers:    g.e.Headers,
		Payload:    g.e.Payload,
	}
	if d.Headers == nil {
		d.Headers = map[string]string{}
	}
	if d.Payload == nil {
		d.Payload = []byte{}
	}
	text, err := json.MarshalIndent(d, "", "  ")
	require.NoError(t, err)
	return append(text, '\n')
}

// writeNew writes a golden file unless there is one of that name.
func writeNew(t *testing.T, name string, content []byte) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(goldenDir, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if os.IsExist(err) {
		return
	}
	require.NoError(t, err)
	_, err = f.Write(content)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

type goldenEnvelope struct {
	about string
	e     Envelope
}

func goldenEnvelopes() map[string]goldenEnvelope {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	large := []byte(strings.Repeat("0123456789abcdef", 1025))
	epoch := time.Unix(0, 0).UTC()
	at := time.Date(2025, 11, 29, 18, 30, 0, 123_456_000, time.UTC)
	order := []byte(`{"order":"10086","total_cents":4990,"currency":"EUR"}`)
	headers := map[string]string{"trace": "00-4bf92f3577b34da6", "source": "checkout", "Source": "upper case sorts first", "empty": ""}
	long := strings.Repeat("order.close/", 11)[:128]
	return map[string]goldenEnvelope{
		"stub":             {"what stands in for a missing record", Envelope{EnqueuedAt: epoch}},
		"minimal":          {"a kind of one byte, at microsecond 0", Envelope{Kind: "k", EnqueuedAt: epoch}},
		"empty-payload":    {"a usual kind and time, no payload", Envelope{Kind: "order.close", EnqueuedAt: at}},
		"order":            {"a usual job", Envelope{Kind: "order.close", Payload: order, EnqueuedAt: at}},
		"headers":          {"headers, in order of their bytes", Envelope{"order.close", order, headers, at}},
		"headers-most":     {"headers of 4096 bytes", Envelope{"k", nil, map[string]string{"big": strings.Repeat("v", 4093)}, at}},
		"headers-no-name":  {"one header, its name and value empty", Envelope{"k", nil, map[string]string{"": ""}, at}},
		"binary":           {"a payload of all 256 byte values", Envelope{Kind: "bytes", Payload: every, EnqueuedAt: at}},
		"utf-8":            {"text beyond ASCII in payload and headers", Envelope{"notify.send", []byte("您的订单已发货 – Größe 42 🚚"), map[string]string{"Grüße": "你好"}, at}},
		"large":            {"16400 bytes, so a payload length of three bytes", Envelope{Kind: "bytes", Payload: large, EnqueuedAt: at}},
		"payload-128":      {"128 bytes, the first payload length of two bytes", Envelope{Kind: "bytes", Payload: large[:128], EnqueuedAt: at}},
		"kind-128":         {"the longest kind, all sorts of characters", Envelope{Kind: long[:117] + "AZ09az._:/-", Payload: order, EnqueuedAt: at}},
		"before-1970":      {"a time before 1970", Envelope{Kind: "k", EnqueuedAt: time.UnixMicro(-1).UTC()}},
		"time-zero":        {"no enqueue time: year 1, as Go's zero time", Envelope{Kind: "k"}},
		"record-in-record": {"a payload that is itself a record", Envelope{Kind: "k", Payload: []byte(stub), EnqueuedAt: at}},
	}
}
