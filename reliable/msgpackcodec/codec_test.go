package msgpackcodec_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"math/big"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/reliable/msgpackcodec"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// invoice has a field of each sort.
type invoice struct {
	ID       int64             `msgpack:"id"`
	Big      uint64            `msgpack:"big"`
	Name     string            `json:"name"`
	Raw      []byte            `msgpack:"raw"`
	At       time.Time         `msgpack:"at"`
	Took     time.Duration     `msgpack:"took"`
	Rate     float64           `msgpack:"rate"`
	Paid     bool              `msgpack:"paid"`
	Lines    []line            `msgpack:"lines"`
	Tags     map[string]string `msgpack:"tags"`
	Parent   *invoice          `msgpack:"parent,omitempty"`
	Hidden   string            `msgpack:"-"`
	Unnamed  int
	Anything any `msgpack:"anything"`
}

type line struct {
	SKU   string `msgpack:"sku"`
	Cents int32  `msgpack:"cents"`
}

func fullInvoice() invoice {
	return invoice{
		ID: math.MinInt64, Big: math.MaxUint64, Name: "a\xffb – Größe", Raw: []byte{0, 0xff, 'a'},
		At: time.Date(2026, 1, 2, 3, 4, 5, 678_901_234, time.UTC), Took: 3 * time.Second, Rate: 0.1, Paid: true,
		Lines: []line{{"x", -1}, {"", 1 << 30}}, Tags: map[string]string{"": "empty", "k": ""},
		Parent: &invoice{ID: 9007199254740993}, Unnamed: 7, Anything: "text",
	}
}

func TestAValueComesBackExactly(t *testing.T) {
	t.Parallel()
	in := fullInvoice()
	payload, err := msgpackcodec.Codec.Marshal(in)
	require.NoError(t, err)
	var out invoice
	require.NoError(t, msgpackcodec.Codec.Unmarshal(payload, &out))
	require.Equal(t, in, out)
	require.Equal(t, "msgpack", msgpackcodec.Codec.Name())
}

// The bytes are those of the specification (https://github.com/msgpack/msgpack/blob/master/spec.md), put together by
// hand: what lies in somebody's Redis must decode for ever, and programs in other languages read it.
func TestValuesHaveTheBytesOfTheSpecification(t *testing.T) {
	t.Parallel()
	type pair struct {
		A int `msgpack:"a"`
		B int `msgpack:"b,omitempty"`
	}
	for name, c := range map[string]struct {
		value any
		bytes string
	}{
		"nil":              {nil, "c0"},
		"true":             {true, "c3"},
		"fixint":           {int64(127), "7f"},
		"negative fixint":  {int64(-32), "e0"},
		"uint 8 or int 16": {int64(-129), "d1ff7f"},
		"uint 64":          {uint64(math.MaxUint64), "cfffffffffffffffff"},
		"int 64":           {int64(math.MinInt64), "d38000000000000000"},
		"float 64":         {1.5, "cb3ff8000000000000"},
		"fixstr":           {"abc", "a3616263"},
		"str 8":            {strings.Repeat("a", 32), "d920" + strings.Repeat("61", 32)},
		"bin 8":            {[]byte("abc"), "c403616263"},
		"fixarray":         {[]string{"a", ""}, "92a161a0"},
		"fixmap":           {pair{1, 2}, "82a16101a16202"},
		"omitempty":        {pair{A: 1}, "81a16101"},
		"timestamp 32":     {time.Unix(1, 0), "d6ff00000001"},
		"timestamp 64":     {time.Unix(1, 1), "d7ff0000000400000001"},
		"timestamp 96":     {time.Unix(-1, 0), "c70cff00000000ffffffffffffffff"},
		"zero time":        {time.Time{}, "c0"},
		"duration":         {time.Microsecond, "d103e8"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			payload, err := msgpackcodec.Codec.Marshal(c.value)
			require.NoError(t, err)
			require.Equal(t, c.bytes, hex.EncodeToString(payload))
		})
	}
}

func TestDecodedIntoAny(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.FixedZone("", 3600))
	payload, err := msgpackcodec.Codec.Marshal([]any{
		int64(math.MaxInt64), uint64(math.MaxUint64), -1, 1.5, "s\xff", []byte{1}, nil, true, map[string]int{"a": 1}, at,
	})
	require.NoError(t, err)
	var out any
	require.NoError(t, msgpackcodec.Codec.Unmarshal(payload, &out))
	require.Equal(t, []any{
		int64(math.MaxInt64), uint64(math.MaxUint64), int64(-1), 1.5, "s\xff", []byte{1}, nil, true,
		map[string]any{"a": int64(1)}, at.UTC(),
	}, out)

	numbered, err := msgpackcodec.Codec.Marshal(map[int]string{1: "a"})
	require.NoError(t, err)
	require.Error(t, msgpackcodec.Codec.Unmarshal(numbered, new(any)), "a key that is no string")
	var typed map[int]string
	require.NoError(t, msgpackcodec.Codec.Unmarshal(numbered, &typed))
	require.Equal(t, map[int]string{1: "a"}, typed)
}

func TestATypeMayGainAndLoseFields(t *testing.T) {
	t.Parallel()
	payload, err := msgpackcodec.Codec.Marshal(map[string]any{"sku": "x", "gone": []any{map[string]any{"deep": 1}}, "Cents": 5})
	require.NoError(t, err)
	var got line
	require.NoError(t, msgpackcodec.Codec.Unmarshal(payload, &got))
	require.Equal(t, line{SKU: "x"}, got, "and names match exactly")
}

func TestNumbersThatDoNotFitAreErrors(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		value  any
		target any
	}{
		"too large":       {300, new(int8)},
		"too large, uint": {uint64(math.MaxInt64), new(int32)},
		"negative":        {-1, new(uint64)},
		"a fraction":      {2.5, new(int)},
		"a float":         {1e300, new(float32)},
		"a string":        {"5", new(int)},
		"no number":       {5, new(string)},
		"an array":        {[]int{1}, new(int)},
	} {
		payload, err := msgpackcodec.Codec.Marshal(c.value)
		require.NoError(t, err, name)
		require.Error(t, msgpackcodec.Codec.Unmarshal(payload, c.target), name)
	}
}

func TestStrAndBinDecodeIntoEachOther(t *testing.T) {
	t.Parallel()
	var text string
	require.NoError(t, msgpackcodec.Codec.Unmarshal([]byte("\xc4\x03ab\xff"), &text))
	require.Equal(t, "ab\xff", text)
	var raw []byte
	require.NoError(t, msgpackcodec.Codec.Unmarshal([]byte("\xa3ab\xff"), &raw))
	require.Equal(t, []byte("ab\xff"), raw)
}

func TestNilIsTheZeroValueAndAnArrayIsAStruct(t *testing.T) {
	t.Parallel()
	got := line{SKU: "x", Cents: 1}
	require.NoError(t, msgpackcodec.Codec.Unmarshal([]byte{0xc0}, &got))
	require.Zero(t, got)
	require.NoError(t, msgpackcodec.Codec.Unmarshal([]byte("\x92\xa1y\x02"), &got))
	require.Equal(t, line{SKU: "y", Cents: 2}, got)
	require.NoError(t, msgpackcodec.Codec.Unmarshal([]byte("\x82\xa3sku\xa1a\xa3sku\xa1b"), &got))
	require.Equal(t, "b", got.SKU, "the last one of a name counts")
}

func TestAPayloadIsOneValueToTheByte(t *testing.T) {
	t.Parallel()
	payload, err := msgpackcodec.Codec.Marshal(fullInvoice())
	require.NoError(t, err)
	for n := range payload {
		require.Error(t, msgpackcodec.Codec.Unmarshal(payload[:n], new(invoice)), "cut to %d bytes", n)
		require.Error(t, msgpackcodec.Codec.Unmarshal(payload[:n], new(any)), "cut to %d bytes", n)
	}
	err = msgpackcodec.Codec.Unmarshal(append(bytes.Clone(payload), 0xc0), new(invoice))
	require.ErrorContains(t, err, "the value ends at byte")
	require.EqualError(t, msgpackcodec.Codec.Unmarshal(nil, new(any)), "the payload is empty")
	require.EqualError(t, msgpackcodec.Codec.Unmarshal([]byte{}, new(any)), "the payload is empty")
	require.Error(t, msgpackcodec.Codec.Unmarshal([]byte(`{"sku":"x"}`), new(line)), "JSON is no MessagePack")
}

// Not parallel: it measures what the whole process allocates.
func TestALengthInThePayloadIsNotBelieved(t *testing.T) {
	for _, payload := range []string{
		"\xdd\x7f\xff\xff\xff", "\xdf\x7f\xff\xff\xff", "\xdb\x7f\xff\xff\xff", "\xc6\x7f\xff\xff\xff", "\xc9\x7f\xff\xff\xff\x05",
	} {
		for _, target := range []any{new(any), new([]invoice), new(map[string]invoice), new(string), new([]byte)} {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			require.ErrorContains(t, msgpackcodec.Codec.Unmarshal([]byte(payload), target), "ends early")
			runtime.ReadMemStats(&after)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20), "%x into %T", payload, target)
		}
	}
}

func TestNestingIsBounded(t *testing.T) {
	t.Parallel()
	nested := func(n int) []byte { return append(bytes.Repeat([]byte{0x91}, n), 1) }
	require.NoError(t, msgpackcodec.Codec.Unmarshal(nested(1000), new(any)))
	const want = "it is nested deeper than 1000 levels"
	require.EqualError(t, msgpackcodec.Codec.Unmarshal(nested(1001), new(any)), want)
	require.EqualError(t, msgpackcodec.Codec.Unmarshal(nested(10_000_000), new(any)), want)
	payload := append([]byte("\x81\xa1x"), nested(10_000_000)...)
	require.EqualError(t, msgpackcodec.Codec.Unmarshal(payload, new(line)), want, "in a field that is ignored")
	payload = append([]byte("\x81\xa1x"), nested(999)...)
	require.NoError(t, msgpackcodec.Codec.Unmarshal(payload, new(line)))
}

type ring struct{ Next *ring }

func TestAValueThatContainsItselfIsAnError(t *testing.T) {
	t.Parallel()
	r := &ring{}
	r.Next = &ring{Next: r}
	_, err := msgpackcodec.Codec.Marshal(r)
	require.ErrorContains(t, err, "circular")
	twice := &ring{}
	_, err = msgpackcodec.Codec.Marshal([]*ring{twice, twice})
	require.NoError(t, err, "the same value twice is no circle")
}

// broken marshals itself, and panics or fails.
type broken string

var errBroken = errors.New("broken")

func (b broken) MarshalBinary() ([]byte, error) { return []byte(b), b.act() }

func (b *broken) UnmarshalBinary(data []byte) error {
	*b = broken(data)
	return b.act()
}

func (b broken) act() error {
	switch b {
	case "panic":
		panic(errBroken)
	case "fail":
		return errBroken
	}
	return nil
}

func TestMethodsThatFailOrPanicAreErrors(t *testing.T) {
	t.Parallel()
	payload, err := msgpackcodec.Codec.Marshal(broken("good"))
	require.NoError(t, err)
	require.Equal(t, "\xc4\x04good", string(payload))
	for _, how := range []broken{"panic", "fail"} {
		_, err := msgpackcodec.Codec.Marshal(how)
		require.ErrorContains(t, err, "broken")
		payload := append([]byte{0xc4, byte(len(how))}, how...)
		require.ErrorContains(t, msgpackcodec.Codec.Unmarshal(payload, new(broken)), "broken")
	}
	require.Error(t, msgpackcodec.Codec.Unmarshal([]byte{0x81, 0x91, 1, 1}, new(map[any]any)), "a key that no map can have")
}

func TestWhatIsLostIsDocumented(t *testing.T) {
	t.Parallel()
	payload, err := msgpackcodec.Codec.Marshal(big.NewInt(5))
	require.NoError(t, err)
	require.Equal(t, []byte{0x80}, payload)

	payload, err = msgpackcodec.Codec.Marshal(uint64(math.MaxUint64))
	require.NoError(t, err)
	var signed int64
	require.NoError(t, msgpackcodec.Codec.Unmarshal(payload, &signed))
	require.EqualValues(t, -1, signed)
}

func TestNothingOfThePayloadIsKept(t *testing.T) {
	t.Parallel()
	in := []any{"a string of some length", []byte("bytes of some length"), map[string]any{"a key of some length": 1}}
	payload, err := msgpackcodec.Codec.Marshal(in)
	require.NoError(t, err)
	first := bytes.Clone(payload)
	_, err = msgpackcodec.Codec.Marshal("another value, by the same encoder perhaps")
	require.NoError(t, err)
	require.Equal(t, first, payload, "the caller owns the payload")
	var out []any
	require.NoError(t, msgpackcodec.Codec.Unmarshal(payload, &out))
	clear(payload)
	require.Equal(t, []any{in[0], in[1], map[string]any{"a key of some length": int64(1)}}, out)
}

func TestOneCodecServesManyGoroutines(t *testing.T) {
	t.Parallel()
	in := fullInvoice()
	want, err := msgpackcodec.Codec.Marshal(line{"x", 1})
	require.NoError(t, err)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 200 {
				payload, err := msgpackcodec.Codec.Marshal(in)
				var out invoice
				if err == nil {
					err = msgpackcodec.Codec.Unmarshal(payload, &out)
				}
				small, err2 := msgpackcodec.Codec.Marshal(line{"x", 1})
				if err := errors.Join(err, err2); err != nil || out.ID != in.ID || !bytes.Equal(want, small) {
					t.Errorf("%v: %+v %x", err, out, small)
				}
				_ = msgpackcodec.Codec.Unmarshal([]byte{0xc1}, &out) // an error between does no harm
			}
		})
	}
	all.Wait()
}
