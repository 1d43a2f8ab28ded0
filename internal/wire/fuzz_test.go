package wire

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// FuzzDecode shows that Decode never panics, and that what it accepts is exactly what Append writes.
func FuzzDecode(f *testing.F) {
	for _, g := range goldenFiles(f) {
		f.Add(g.bytes)
		f.Add(g.bytes[:len(g.bytes)/2])
	}
	f.Add(Stub())
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := Decode(b)
		var newer *NewerVersionError
		switch {
		case errors.As(err, &newer):
			require.NotErrorIs(t, err, ErrUndecodable)
			require.EqualValues(t, b[0], newer.Version)
		case err != nil:
			require.ErrorIs(t, err, ErrUndecodable)
			require.Zero(t, e)
		case e.Kind == "":
			require.Equal(t, Stub(), b)
		default:
			again, err := Append(nil, &e)
			require.NoError(t, err)
			require.Equal(t, b, again)
			e2, err := Decode(again)
			require.NoError(t, err)
			require.Equal(t, e, e2)
		}
	})
}

// FuzzRoundTrip shows that an envelope is either refused, leaving dst alone, or comes back whole, and that no part of
// its encoding passes for a whole.
func FuzzRoundTrip(f *testing.F) {
	f.Add("order.close", []byte(`{"order":"10086"}`), int64(1764417600123456), "trace", "00-4bf92f35", "source", "shop", uint16(0), uint16(9))
	f.Add("", []byte(nil), int64(-1), "", "", "", "", uint16(0), uint16(0))
	f.Fuzz(func(t *testing.T, kind string, payload []byte, micros int64, n1, v1, n2, v2 string, pad, cut uint16) {
		v1 += strings.Repeat("v", int(pad)%(2*MaxHeaders)) // long values out of short inputs, which fuzzing is quicker with
		e := Envelope{Kind: kind, Payload: payload, EnqueuedAt: time.UnixMicro(micros).UTC()}
		e.Headers = map[string]string{n1: v1, n2: v2}
		size := 0
		for name, value := range e.Headers {
			size += len(name) + len(value)
		}
		b, err := Append([]byte("dst"), &e)
		require.Equal(t, "dst", string(b[:3]))
		if ValidateKind(kind) != nil || size > MaxHeaders {
			require.Error(t, err)
			require.Len(t, b, 3)
			return
		}
		require.NoError(t, err)
		b = b[3:]
		got, err := Decode(b)
		require.NoError(t, err)
		if len(payload) == 0 {
			e.Payload = nil
		}
		require.Equal(t, e, got)
		_, err = Decode(b[:int(cut)%len(b)])
		require.ErrorIs(t, err, ErrUndecodable)
	})
}
