package reliable

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

type closeOrder struct{ ID string }

func (closeOrder) Kind() string { return "order.close" }

// refund's Kind reads a field, so it panics for a nil pointer.
type refund struct {
	Amount int
	kind   string
}

func (r *refund) Kind() string { return "refund" + r.kind }

type tags map[string]string

func (t tags) Kind() string {
	t["asked"] = "panics for a nil map"
	return "tags"
}

type lines []string

func (lines) Kind() string { return "lines" }

type count int

func (count) Kind() string { return "count" }

type spaced struct{}

func (spaced) Kind() string { return "not a kind" }

type long struct{}

func (long) Kind() string { return strings.Repeat("k", 129) }

type embedding struct{ Kinder }

type function func()

func (function) Kind() string { return "function" }

type channel chan int

func (channel) Kind() string { return "channel" }

func kindOK[T Kinder](t *testing.T, want string) {
	t.Helper()
	kind, err := kindOf[T]()
	require.NoError(t, err)
	require.Equal(t, want, kind)
}

func kindFails[T Kinder](t *testing.T, want string) {
	t.Helper()
	_, err := kindOf[T]()
	require.ErrorContains(t, err, want)
}

func TestKindIsAskedOfAFreshValueThatIsNeverNil(t *testing.T) {
	t.Parallel()
	kindOK[closeOrder](t, "order.close")
	kindOK[*closeOrder](t, "order.close")
	kindOK[*refund](t, "refund")
	kindOK[tags](t, "tags")
	kindOK[*tags2](t, "tags2")
	kindOK[lines](t, "lines")
	kindOK[count](t, "count")
	kindOK[*count](t, "count")
}

type tags2 map[string]string

func (*tags2) Kind() string { return "tags2" }

func TestTypesThatHaveNoUsableKindAreRefused(t *testing.T) {
	t.Parallel()
	kindFails[spaced](t, `kind of reliable.spaced: kind "not a kind" holds ' '`)
	kindFails[long](t, "129 bytes")
	kindFails[Kinder](t, "want one that a payload decodes into")
	kindFails[function](t, "want one that a payload decodes into")
	kindFails[channel](t, "want one that a payload decodes into")
	kindFails[embedding](t, "Kind of a fresh value has panicked: runtime error: invalid memory address")
}

func TestPayloadsDecodeIntoFreshValues(t *testing.T) {
	t.Parallel()
	job := &Job{Kind: "order.close", Payload: []byte(`{"ID":"10086"}`)}
	byValue, err := decodeJob[closeOrder](job)
	require.NoError(t, err)
	require.Equal(t, closeOrder{ID: "10086"}, byValue)
	first, err := decodeJob[*closeOrder](job)
	require.NoError(t, err)
	require.Equal(t, &closeOrder{ID: "10086"}, first)
	second, err := decodeJob[*closeOrder](job)
	require.NoError(t, err)
	require.NotSame(t, first, second)
	m, err := decodeJob[tags](&Job{Payload: []byte(`{"a":"b"}`)})
	require.NoError(t, err)
	require.Equal(t, tags{"a": "b"}, m)
	l, err := decodeJob[lines](&Job{Payload: []byte(`["a"]`)})
	require.NoError(t, err)
	require.Equal(t, lines{"a"}, l)
}

func TestNoPayloadMakesAPointerNil(t *testing.T) {
	t.Parallel()
	got, err := decodeJob[*refund](&Job{Payload: []byte("null")})
	require.NoError(t, err)
	require.Equal(t, &refund{}, got)
}

func TestBadPayloadNamesItsReasonAndBuries(t *testing.T) {
	t.Parallel()
	for _, payload := range []string{"", "{", `{"Amount":"x"}`, `[]`, "\x92\x01\x02"} {
		got, err := decodeJob[*refund](&Job{Kind: "refund", Payload: []byte(payload)})
		require.Nil(t, got)
		var bad *BadPayloadError
		require.ErrorAs(t, err, &bad)
		require.Equal(t, "refund", bad.Kind)
		require.True(t, strings.HasPrefix(reasonOf(err), "bad payload: json: "), reasonOf(err))
		require.Equal(t, opBury, verdictOf(err).op)
	}
}

type upperCodec struct{ jsonCodec }

var errUpper = errors.New("not upper case")

func (upperCodec) Name() string { return "upper" }

func (upperCodec) Unmarshal(data []byte, v any) error {
	if string(data) != strings.ToUpper(string(data)) {
		return errUpper
	}
	return JSON.Unmarshal(data, v)
}

func TestPayloadsDecodeWithTheCodecOfTheirQueue(t *testing.T) {
	t.Parallel()
	job := &Job{Payload: []byte(`{"ID":"X"}`), queue: &Queue{opts: QueueOptions{Codec: upperCodec{}}}}
	got, err := decodeJob[closeOrder](job)
	require.NoError(t, err)
	require.Equal(t, "X", got.ID)
	job.Payload = []byte(`{"ID":"x"}`)
	_, err = decodeJob[closeOrder](job)
	require.ErrorIs(t, err, errUpper)
	require.Equal(t, "bad payload: upper: not upper case", err.Error())
}
