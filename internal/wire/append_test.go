package wire

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var noon = time.Date(2025, 11, 29, 12, 0, 0, 123_456_000, time.UTC)

// encode appends e to nothing and fails the test if that is refused.
func encode(t testing.TB, e *Envelope) []byte {
	t.Helper()
	b, err := Append(nil, e)
	require.NoError(t, err)
	return b
}

func TestAppendWritesTheDocumentedLayout(t *testing.T) {
	t.Parallel()
	b := encode(t, &Envelope{
		Kind:       "a.b",
		Payload:    []byte("xyz"),
		Headers:    map[string]string{"n": "", "m": "22"},
		EnqueuedAt: time.UnixMicro(0x0102030405060708),
	})
	want := "\x01" + "\x08" + "\x01\x02\x03\x04\x05\x06\x07\x08" + "\x03a.b" + "\x01m\x0222" + "\x01n\x00" + "\x03xyz"
	require.Equal(t, want, string(b))
}

func TestRecordIsAtMost16BytesOverKindAndPayload(t *testing.T) {
	t.Parallel()
	for _, payload := range []int{0, 1, 200, 512 << 10} {
		for _, kind := range []int{1, 11, 128} {
			e := Envelope{Kind: strings.Repeat("k", kind), Payload: make([]byte, payload), EnqueuedAt: noon}
			over := len(encode(t, &e)) - kind - payload
			assert.LessOrEqual(t, over, 16, "kind of %d bytes, payload of %d", kind, payload)
		}
	}
	// What Redis can store at most, 512 MiB, without making it.
	assert.LessOrEqual(t, fixedSize+uvarintSize(0)+uvarintSize(512<<20), 16)
}

func TestAppendKeepsWhatStandsBeforeAndIsTheSameEachTime(t *testing.T) {
	t.Parallel()
	e := Envelope{Kind: "order.close", Headers: map[string]string{}, EnqueuedAt: noon}
	for i := range 50 {
		e.Headers[fmt.Sprintf("name-%02d", i*7%50)] = "v"
	}
	first := encode(t, &e)
	for range 20 {
		b, err := Append([]byte("before"), &e)
		require.NoError(t, err)
		require.Equal(t, "before"+string(first), string(b))
	}
}

func TestAppendRefusesAndSaysEveryReason(t *testing.T) {
	t.Parallel()
	year := time.Date(400_000, 1, 1, 0, 0, 0, 0, time.UTC)
	over := map[string]string{"name": strings.Repeat("v", MaxHeaders-3)}
	for _, c := range []struct {
		name string
		e    Envelope
		says []string
	}{
		{"no kind", Envelope{}, []string{"kind is empty"}},
		{"long kind", Envelope{Kind: strings.Repeat("k", 129)}, []string{"129 bytes", "at most 128"}},
		{"kind with a blank", Envelope{Kind: "a b"}, []string{"at byte 1"}},
		{"headers over the limit", Envelope{Kind: "k", Headers: over}, []string{"4097 bytes", "at most 4096"}},
		{"time out of range", Envelope{Kind: "k", EnqueuedAt: year}, []string{"year 400000"}},
		{"all at once", Envelope{Kind: "ä", Headers: over, EnqueuedAt: year}, []string{"kind", "headers", "year"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			room := bytes.Repeat([]byte{'.'}, 64)
			got, err := Append(room[:3], &c.e)
			for _, part := range c.says {
				require.ErrorContains(t, err, part)
			}
			assert.Equal(t, "...", string(got))
			assert.Equal(t, strings.Repeat(".", 64), string(room), "nothing is written behind dst")
		})
	}
}

func TestLimitsAreInclusive(t *testing.T) {
	t.Parallel()
	for _, e := range []Envelope{
		{Kind: strings.Repeat("k", 128)},
		{Kind: "k", Headers: map[string]string{"name": strings.Repeat("v", MaxHeaders-4)}},
		{Kind: "k", Headers: map[string]string{strings.Repeat("n", MaxHeaders): ""}},
		{Kind: "k", Headers: map[string]string{"": ""}},
		{Kind: "k", EnqueuedAt: time.UnixMicro(math.MaxInt64)},
		{Kind: "k", EnqueuedAt: time.UnixMicro(math.MinInt64)},
	} {
		got, err := Decode(encode(t, &e))
		require.NoError(t, err)
		e.EnqueuedAt = e.EnqueuedAt.UTC()
		require.Equal(t, e, got)
	}
}

func TestKindsAllowedAndNot(t *testing.T) {
	t.Parallel()
	for c := range 256 {
		kind := "a" + string([]byte{byte(c)})
		allowed := strings.Contains("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:/-", kind[1:])
		err := ValidateKind(kind)
		assert.Equal(t, allowed, err == nil, "%q: %v", kind, err)
	}
	require.Error(t, ValidateKind(""))
	require.Error(t, ValidateKind("order.close\n"))
}

// Not parallel: AllocsPerRun counts the whole process.
func TestAppendAllocatesNothingWithRoom(t *testing.T) {
	headers := map[string]string{}
	for i := range sortedInPlace {
		headers[fmt.Sprintf("name-%02d", i)] = "v"
	}
	dst := make([]byte, 0, 4096)
	for _, e := range []Envelope{
		{Kind: "order.close", Payload: make([]byte, 200), EnqueuedAt: noon},
		{Kind: "order.close", Payload: make([]byte, 200), EnqueuedAt: noon, Headers: headers},
	} {
		assert.Zero(t, testing.AllocsPerRun(100, func() { _, _ = Append(dst, &e) }))
		// Built for the race detector, slices.Grow takes two.
		assert.LessOrEqual(t, testing.AllocsPerRun(100, func() { _, _ = Append(nil, &e) }), 2.0, "dst grows once")
	}
}
