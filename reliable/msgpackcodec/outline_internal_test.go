package msgpackcodec

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every format of the specification, with the fewest and with some bytes.
var wholes = []string{
	"\x00", "\x7f", "\x80", "\x81\x01\x02", "\x8f" + strings.Repeat("\x01\x02", 15), "\x90", "\x9f" + strings.Repeat("\xc0", 15),
	"\xa0", "\xbf" + strings.Repeat("a", 31), "\xc0", "\xc2", "\xc3", "\xc4\x00", "\xc4\x01a", "\xc5\x00\x01a", "\xc6\x00\x00\x00\x01a",
	"\xc7\x00\x05", "\xc7\x01\x05a", "\xc8\x00\x01\x05a", "\xc9\x00\x00\x00\x01\x05a", "\xca1234", "\xcb12345678", "\xcc1", "\xcd12",
	"\xce1234", "\xcf12345678", "\xd01", "\xd112", "\xd21234", "\xd312345678", "\xd4\x051", "\xd5\x0512", "\xd6\x051234",
	"\xd7\x0512345678", "\xd8\x051234567890123456", "\xd9\x01a", "\xda\x00\x01a", "\xdb\x00\x00\x00\x01a", "\xdc\x00\x01\x01",
	"\xdd\x00\x00\x00\x01\x01", "\xde\x00\x01\x01\x02", "\xdf\x00\x00\x00\x01\x01\x02", "\xe0", "\xff",
}

func TestAnOutlineIsOneWholeValue(t *testing.T) {
	t.Parallel()
	firsts := map[byte]bool{}
	for _, whole := range wholes {
		firsts[whole[0]] = true
		require.NoError(t, checkOutline([]byte(whole)), "%x", whole)
		require.EqualError(t, checkOutline([]byte(whole+"\xc0")), "the value ends at byte "+itoa(len(whole))+" of "+itoa(len(whole)+1))
		for n := range len(whole) {
			require.Error(t, checkOutline([]byte(whole[:n])), "%x", whole[:n])
		}
	}
	for first := 0xc0; first < 0xe0; first++ {
		require.Equal(t, first != 0xc1, firsts[byte(first)], "%x", first)
	}
	require.EqualError(t, checkOutline([]byte("\x92\x01\xc1")), "at byte 2: 0xc1 begins no value")
	require.EqualError(t, checkOutline(nil), "the payload is empty")
	require.NoError(t, checkOutline([]byte("\x9f"+strings.Join(wholes[:15], ""))))
}

func itoa(n int) string {
	return string(bytes.TrimLeft([]byte{byte('0' + n/10), byte('0' + n%10)}, "0"))
}

func TestAnOutlineIsBoundedInDepthAndBelievesNoLength(t *testing.T) {
	t.Parallel()
	nested := func(n int, first string) []byte { return []byte(strings.Repeat(first, n) + "\x01") }
	require.NoError(t, checkOutline(nested(maxDepth, "\x91")))
	require.EqualError(t, checkOutline(nested(maxDepth+1, "\x91")), "it is nested deeper than 1000 levels")
	require.EqualError(t, checkOutline(nested(maxDepth+1, "\x81\x01")), "it is nested deeper than 1000 levels")
	require.NoError(t, checkOutline([]byte("\xdc\x10\x00"+strings.Repeat("\x90", 4096))), "side by side is not deep")
	for _, lie := range []string{"\xdd\xff\xff\xff\xff", "\xdf\xff\xff\xff\xff", "\xdb\xff\xff\xff\xff", "\xc9\xff\xff\xff\xff\x05", "\x91\x92\x01"} {
		require.ErrorContains(t, checkOutline([]byte(lie)), "ends early", "%x", lie)
	}
}

func BenchmarkUnmarshal(b *testing.B) {
	type order struct {
		Order, Customer, Currency, PlacedAt, Reason string
		Items, TotalCents                           int64
	}
	payload, err := Codec.Marshal(order{"10086", "cus_cgcdzf", "EUR", "2025-11-28T10:49:47Z", "unpaid", 5, 12337})
	require.NoError(b, err)
	b.Run("outline", func(b *testing.B) {
		for b.Loop() {
			if err := checkOutline(payload); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("whole", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var o order
			if err := Codec.Unmarshal(payload, &o); err != nil {
				b.Fatal(err)
			}
		}
	})
}
