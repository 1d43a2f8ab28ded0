package reliable

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestStacksKeepTheirRulesForAnyText(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.OneOf(rapid.Just(maxStack), rapid.IntRange(0, 600)).Draw(t, "most")
		got := stackText(anyText().Draw(t, "trace"), "panic(", most)
		require.LessOrEqual(t, len(got), most)
		require.True(t, utf8.ValidString(got))
		require.Equal(t, -1, strings.IndexFunc(got, func(r rune) bool { return r != '\n' && r != '\t' && unicode.IsControl(r) }), "%q", got)
	})
}

func TestStackBeginsAtItsMark(t *testing.T) {
	t.Parallel()
	trace := "goroutine 1 [running]:\nours()\n\tours.go:1\npanic({0x1, 0x2})\n\tpanic.go:1\nuser()\n\tuser.go:1\npanic({0x3})\n\n"
	require.Equal(t, "panic({0x1, 0x2})\n\tpanic.go:1\nuser()\n\tuser.go:1\npanic({0x3})", stackText(trace, "panic(", maxStack))
	require.Equal(t, strings.TrimRight(trace, "\n"), stackText(trace, "absent(", maxStack))
	require.Equal(t, "panic({0x1, 0x2})\n\tpanic.go:1", stackText(trace, "panic(", 36), "cut at a line's end")
	require.Equal(t, "panic({0", stackText(trace, "panic(", 8))
	require.Equal(t, "a\x20b", stackText("a\x1b\x20\r\x00b\u009b\u202e", "panic(", maxStack))
}
