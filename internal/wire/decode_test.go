package wire

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func full() *Envelope {
	return &Envelope{
		Kind:       "order.close",
		Payload:    []byte(`{"order":"10086"}`),
		Headers:    map[string]string{"trace": "00-4bf92f35", "source": "checkout", "": "no name"},
		EnqueuedAt: noon,
	}
}

// record puts together a record by hand, with whatever lengths the test wants to be wrong.
func record(headersLen, kind, block, payload string) []byte {
	return []byte("\x01" + headersLen + "\x00\x00\x00\x00\x00\x00\x00\x09" + kind + block + payload)
}

func TestDecodeGivesBackWhatWasEncoded(t *testing.T) {
	t.Parallel()
	got, err := Decode(encode(t, full()))
	require.NoError(t, err)
	require.Equal(t, *full(), got)
}

func TestTimeKeepsMicrosecondsAndIsUTC(t *testing.T) {
	t.Parallel()
	zone := time.FixedZone("east", 3*3600)
	for _, c := range []struct{ in, want time.Time }{
		{noon.Add(999), noon},
		{noon.In(zone), noon},
		{time.Date(1969, 12, 31, 23, 59, 59, 999_999_999, time.UTC), time.Date(1969, 12, 31, 23, 59, 59, 999_999_000, time.UTC)},
		{time.Time{}, time.Time{}},
	} {
		got, err := Decode(encode(t, &Envelope{Kind: "k", EnqueuedAt: c.in}))
		require.NoError(t, err)
		assert.Equal(t, c.want, got.EnqueuedAt)
	}
	got, err := Decode(encode(t, &Envelope{Kind: "k"}))
	require.NoError(t, err)
	require.True(t, got.EnqueuedAt.IsZero())
}

func TestNilAndEmptyAreTheSame(t *testing.T) {
	t.Parallel()
	none := encode(t, &Envelope{Kind: "k"})
	empty := encode(t, &Envelope{Kind: "k", Payload: []byte{}, Headers: map[string]string{}})
	require.Equal(t, none, empty)
	got, err := Decode(empty)
	require.NoError(t, err)
	assert.Nil(t, got.Payload)
	assert.Nil(t, got.Headers)
}

func TestEveryCutIsFoundOut(t *testing.T) {
	t.Parallel()
	long := full()
	long.Payload = make([]byte, 300)
	for _, e := range []*Envelope{{Kind: "k"}, {Kind: "k", Payload: []byte("p")}, full(), long} {
		b := encode(t, e)
		for n := range b {
			got, err := Decode(b[:n])
			require.ErrorIs(t, err, ErrUndecodable, "first %d of %d bytes", n, len(b))
			require.Zero(t, got)
		}
	}
}

func TestBytesBehindTheEndAreFoundOut(t *testing.T) {
	t.Parallel()
	for _, b := range [][]byte{encode(t, full()), encode(t, &Envelope{Kind: "k"}), Stub()} {
		for _, more := range []string{"\x00", "\n", "\x01", string(b)} {
			_, err := Decode(append(b[:len(b):len(b)], more...))
			require.ErrorIs(t, err, ErrUndecodable, "%q behind", more)
		}
	}
}

func TestOnlyTheOneEncodingIsAccepted(t *testing.T) {
	t.Parallel()
	big := string(binary.AppendUvarint(nil, MaxHeaders))
	for name, b := range map[string][]byte{
		"payload length in two bytes":      record("\x00", "\x01k", "", "\x81\x00p"),
		"zero payload length in two bytes": record("\x00", "\x01k", "", "\x80\x00"),
		"headers length in two bytes":      record("\x84\x00", "\x01k", "\x01n\x01v", "\x00"),
		"name length in two bytes":         record("\x05", "\x01k", "\x81\x00n\x01v", "\x00"),
		"length over 64 bits":              record("\x00", "\x01k", "", strings.Repeat("\xff", 10)),
		"greatest length":                  record("\x00", "\x01k", "", strings.Repeat("\xff", 9)+"\x01"),
		"headers out of order":             record("\x08", "\x01k", "\x01b\x01v\x01a\x01v", "\x00"),
		"header named twice":               record("\x08", "\x01k", "\x01a\x01v\x01a\x01v", "\x00"),
		"headers block ends in a name":     record("\x02", "\x01k", "\x01a", "\x00"),
		"value reaches out of the block":   record("\x03", "\x01k", "\x01a\x01", "\x00"),
		"headers over the limit":           record("\x84\x20", "\x01k", "\x01n"+big+strings.Repeat("v", MaxHeaders), "\x00"),
		"no kind, though a payload":        record("\x00", "\x00", "", "\x01p"),
		"no kind, though a time":           record("\x00", "\x00", "", "\x00"),
		"kind of 129 bytes":                record("\x00", "\x81"+strings.Repeat("k", 129), "", "\x00"),
		"kind with a blank":                record("\x00", "\x03a b", "", "\x00"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := Decode(b)
			require.ErrorIs(t, err, ErrUndecodable)
			assert.Zero(t, got)
			assert.Less(t, len(err.Error()), 200)
		})
	}
	// The same by hand without the mistake, so that the cases above fail for the reason they name.
	for _, b := range [][]byte{
		record("\x00", "\x01k", "", "\x01p"),
		record("\x04", "\x01k", "\x01n\x01v", "\x00"),
		record("\x08", "\x01k", "\x01a\x01v\x01b\x01v", "\x00"),
		record("\x83\x20", "\x01k", "\x01n"+"\xff\x1f"+strings.Repeat("v", MaxHeaders-1), "\x00"),
		record("\x00", "\x80"+strings.Repeat("k", 128), "", "\x00"),
	} {
		_, err := Decode(b)
		require.NoError(t, err, "%.40q", b)
	}
}

func TestFirstByteTellsNewerFromUndecodable(t *testing.T) {
	t.Parallel()
	rest := encode(t, full())[1:]
	for first := range 256 {
		for _, tail := range [][]byte{rest, nil} {
			_, err := Decode(append([]byte{byte(first)}, tail...))
			var newer *NewerVersionError
			switch {
			case first == Version && tail != nil:
				require.NoError(t, err)
			case first >= 2 && first <= 15:
				require.ErrorAs(t, err, &newer)
				assert.Equal(t, first, newer.Version)
				assert.NotErrorIs(t, err, ErrUndecodable)
				assert.ErrorContains(t, err, "reads up to version 1")
			default:
				require.ErrorIs(t, err, ErrUndecodable)
				assert.False(t, errors.As(err, &newer))
			}
		}
	}
	for _, foreign := range []string{"", "{}", `{"kind":"order.close"}`, "null", "10086", "\x1f\x8b\x08", "\x82\xa4kind"} {
		_, err := Decode([]byte(foreign))
		require.ErrorIs(t, err, ErrUndecodable, "%q", foreign)
	}
}

func TestStubIsAnEnvelopeWithNothingInIt(t *testing.T) {
	t.Parallel()
	b := Stub()
	require.Equal(t, "\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00", string(b))
	got, err := Decode(b)
	require.NoError(t, err)
	require.Equal(t, Envelope{EnqueuedAt: time.Unix(0, 0).UTC()}, got)
	b[0] = 9
	require.NotEqual(t, b, Stub(), "each caller has bytes of its own")
}

func TestPayloadAliasesTheRecordWithoutRoomBehind(t *testing.T) {
	t.Parallel()
	b := append(encode(t, full()), "behind"...)
	e, err := Decode(b[:len(b)-len("behind")])
	require.NoError(t, err)
	e.Payload[0] = '['
	assert.Contains(t, string(b), `["order"`)
	_ = append(e.Payload, "overwritten"...)
	assert.True(t, strings.HasSuffix(string(b), "behind"))
}

func TestStringsOutliveTheRecord(t *testing.T) {
	t.Parallel()
	b := encode(t, full())
	e, err := Decode(b)
	require.NoError(t, err)
	clear(b)
	assert.Equal(t, full().Kind, e.Kind)
	assert.Equal(t, full().Headers, e.Headers)
}

// Not parallel: AllocsPerRun counts the whole process.
func TestDecodeAllocatesOnlyKindAndHeaders(t *testing.T) {
	plain := full()
	plain.Headers = nil
	b := encode(t, plain)
	assert.EqualValues(t, 1, testing.AllocsPerRun(100, func() { _, _ = Decode(b) }), "the kind")
	b = encode(t, full())
	assert.LessOrEqual(t, testing.AllocsPerRun(100, func() { _, _ = Decode(b) }), 4.0, "kind, headers' bytes, map")
}
