package reliable

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestReasonsAreOneHarmlessLine(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":                             "(no text)",
		" \n\t ":                       "(no text)",
		"card declined":                "card declined",
		"a\nb\r\n\tc":                  "a b c",
		"  padded \n":                  "padded",
		"a\u2028b\u2029c\u0085d":       "a b c d",
		"a\x00b":                       "a␀b",
		"\x1b[31mred\x1b[0m":           "␛[31mred␛[0m",
		"\x1b]0;title\x07":             "␛]0;title␇",
		"\x7f\x08":                     "␡␈",
		"csi \u009b31m":                "csi \ufffd31m",
		"\xe8":                         "\ufffd",
		"a\xe2\x82":                    "a\ufffd\ufffd",
		"ok\ufffd":                     "ok\ufffd",
		"user \u202egnp.exe\u2066":     "user \ufffdgnp.exe\ufffd",
		"größe € 😀":                    "größe € 😀",
		`quote " and \ stay`:           `quote " and \ stay`,
		"multi\n\n\nline\n  {\n  a\n}": "multi line { a }",
	} {
		require.Equal(t, want, reasonText(in, maxReason), "%q", in)
	}
}

func TestLongReasonsAreCutBetweenCharacters(t *testing.T) {
	t.Parallel()
	require.Equal(t, strings.Repeat("x", 512), reasonText(strings.Repeat("x", 512), maxReason))
	require.Equal(t, strings.Repeat("x", 509)+"…", reasonText(strings.Repeat("x", 513), maxReason))
	require.Equal(t, strings.Repeat("x", 509)+"…", reasonText(strings.Repeat("x", 511)+"€", maxReason))
	require.Equal(t, "xx"+strings.Repeat("€", 169)+"…", reasonText("xx"+strings.Repeat("€", 200), maxReason))
	require.Equal(t, strings.Repeat("x", 512), reasonText(strings.Repeat("x", 512)+"\n\n", maxReason), "nothing is cut, so nothing marks a cut")
	require.Equal(t, "ab…", reasonText("ab cdef", 6))
	require.Equal(t, "…", reasonText("abcd", 3))
	require.Equal(t, "ab", reasonText("abcd", 2))
	require.Empty(t, reasonText("€", 2))
	require.Equal(t, "(n", reasonText("", 2))
	require.Empty(t, reasonText("abc", 0))
	require.Empty(t, reasonText("", -1))
}

// anyText draws valid text, and bytes of all sorts with what hurts terminals among them.
func anyText() *rapid.Generator[string] {
	piece := rapid.OneOf(
		rapid.String(),
		rapid.SampledFrom([]string{"\x1b[2J", "\n", "\t", " ", "\r\n", "\x00", "\xe8", "€", "\xe2\x82", "\u202e", "\u009b", "\u2028", "…"}),
		rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 40), func(b []byte) string { return string(b) }),
		rapid.Map(rapid.IntRange(0, 600), func(n int) string { return strings.Repeat("y", n) }),
	)
	return rapid.Map(rapid.SliceOfN(piece, 0, 20), func(pieces []string) string { return strings.Join(pieces, "") })
}

func TestReasonsKeepTheirRulesForAnyText(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := anyText().Draw(t, "in")
		most := rapid.OneOf(rapid.Just(maxReason), rapid.IntRange(12, 600)).Draw(t, "most")
		got := reasonText(in, most)

		require.LessOrEqual(t, len(got), most)
		require.NotEmpty(t, got)
		require.True(t, utf8.ValidString(got))
		require.Equal(t, -1, strings.IndexFunc(got, unicode.IsControl), "%q", got)
		require.Equal(t, -1, strings.IndexFunc(got, func(r rune) bool { return r != ' ' && unicode.IsSpace(r) }))
		require.Equal(t, strings.TrimSpace(got), got)
		require.Equal(t, got, reasonText(got, most), "a reason is its own reason")
		if cut, was := strings.CutSuffix(got, "…"); was && len(got) > most-utf8.UTFMax {
			require.True(t, strings.HasPrefix(reasonText(in, 1<<20), cut), "what is cut is a beginning of the whole")
		}
		encoded, err := json.Marshal(got)
		require.NoError(t, err)
		var back string
		require.NoError(t, json.Unmarshal(encoded, &back))
		require.Equal(t, got, back)
	})
}

func TestReasonsUnderAnyLimitStayValid(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(-2, 15).Draw(t, "most")
		got := reasonText(anyText().Draw(t, "in"), most)
		require.LessOrEqual(t, len(got), max(most, 0))
		require.True(t, utf8.ValidString(got))
	})
}

func TestHugeReasonsAreNotCopied(t *testing.T) {
	huge := strings.Repeat("a\n", 5<<20)
	var got string
	bytes := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			got = reasonText(huge, maxReason)
		}
	}).AllocedBytesPerOp()
	require.Len(t, got, 512)
	require.Less(t, bytes, int64(16<<10))
	require.LessOrEqual(t, len(panicked(huge).Reason), maxReason)
}

type badError struct{ with any }

func (e *badError) Error() string { panic(e.with) }

type selfPanics struct{}

func (e selfPanics) Error() string  { panic(e) }
func (e selfPanics) String() string { panic(e) }

type stringer string

func (s stringer) String() string { return "stringer " + string(s) }

type badStringer struct{}

func (badStringer) String() string { panic("no string") }

type badFormatter int

func (badFormatter) Format(fmt.State, rune) { panic("no format") }

func TestErrorsWithoutATextStillHaveAReason(t *testing.T) {
	t.Parallel()
	require.Equal(t, "(no text)", errorText(nil))
	require.Equal(t, "(no text)", reasonOf(errors.New("")))
	require.Equal(t, "card declined", errorText(errCard))
	require.Equal(t, "(no text: Error of *reliable.badError has panicked: boom)", errorText(&badError{with: "boom"}))
	require.Equal(t, "(no text: Error of *reliable.badError has panicked: 7)", errorText(&badError{with: 7}))
	require.Contains(t, errorText(&badError{with: nil}), "has panicked: a value of type *runtime.PanicNilError")
	require.Contains(t, errorText((*badError)(nil)), "has panicked: ")
	require.Contains(t, errorText(selfPanics{}), "has panicked: a value of type reliable.selfPanics")
	require.Contains(t, reasonOf(fmt.Errorf("%w: %w", errCard, Discard(nil))), "card declined: discarded")
	require.Contains(t, reasonOf(Discard(&badError{with: "boom"})), "(no text: Error of *reliable.verdictError has panicked: boom)")
}

func TestPanicValuesAreNamedWithoutTrustingThem(t *testing.T) {
	t.Parallel()
	circle := []any{nil}
	circle[0] = circle
	for _, c := range []struct {
		value any
		want  string
	}{
		{"x", "x"}, {closeOrder{}, "a value of type reliable.closeOrder"}, {errCard, "card declined"}, {7, "7"}, {uint8(7), "7"},
		{true, "true"}, {2.5, "2.5"}, {complex(1, 2), "(1+2i)"}, {nil, "nil"}, {count(3), "3"}, {stringer("s"), "stringer s"},
		{circle, "a value of type []interface {}"}, {badFormatter(4), "4"},
		{badStringer{}, "(no text: String of reliable.badStringer has panicked: no string)"},
		{&badError{with: errCard}, "(no text: Error of *reliable.badError has panicked: a value of type *errors.errorString)"},
		{selfPanics{}, "(no text: Error of reliable.selfPanics has panicked: a value of type reliable.selfPanics)"},
	} {
		require.Equal(t, c.want, panicText(c.value))
	}
}
