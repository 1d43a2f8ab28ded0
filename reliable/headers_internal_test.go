package reliable

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHeadersAsLargeAsTheyMayBe(t *testing.T) {
	t.Parallel()
	for name, headers := range map[string]map[string]string{
		"none":        nil,
		"empty":       {},
		"empty value": {"a": ""},
		"any value":   {"a": "\x00\xff\n\x1b"},
		"in UTF-8":    {"Größe 大小": "1"},
		"at the most": {"name": strings.Repeat("v", MaxHeaders-4)},
		"name only":   {strings.Repeat("n", MaxHeaders): ""},
	} {
		require.NoError(t, checkHeaders(headers), name)
	}
	var tooLarge *TooLargeError
	require.ErrorAs(t, checkHeaders(map[string]string{"name": strings.Repeat("v", MaxHeaders-4), "b": ""}), &tooLarge)
	require.Equal(t, TooLargeError{What: "headers", Size: MaxHeaders + 1, Limit: MaxHeaders}, *tooLarge)
}

func TestBadHeaderNamesAreRefusedAndNamed(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1000) + "\n"
	for name, want := range map[string]string{
		"":           "a header's name is empty: want at least 1 byte",
		"a\nb":       `header name "a\nb" holds the control character U+000A at byte 1: names are text, only values may hold any bytes`,
		"\x7f":       `header name "\x7f" holds the control character U+007F at byte 0: names are text, only values may hold any bytes`,
		"é\u0085":    `header name "é\u0085" holds the control character U+0085 at byte 2: names are text, only values may hold any bytes`,
		"trace\xff!": `header name "trace\xff!" is not valid UTF-8: names are text, only values may hold any bytes`,
		long:         `header name "` + strings.Repeat("x", 64) + `"… holds the control character U+000A at byte 1000: names are text, only values may hold any bytes`,
	} {
		require.EqualError(t, checkHeaders(map[string]string{name: "v", "good": "v"}), want)
	}
}

func TestAllThatIsWrongWithHeadersIsToldInOrderAndBounded(t *testing.T) {
	t.Parallel()
	headers := map[string]string{"": strings.Repeat("v", MaxHeaders+1)}
	for i := range 100 {
		headers[fmt.Sprintf("\x01%02d", i)] = ""
	}
	err := checkHeaders(headers)
	var tooLarge *TooLargeError
	require.ErrorAs(t, err, &tooLarge)
	lines := strings.Split(err.Error(), "\n")
	require.Len(t, lines, 4)
	require.Contains(t, lines[1], "empty")
	require.Contains(t, lines[2], `"\x0100"`)
	require.Contains(t, lines[3], `"\x0101"`)
	for range 20 {
		require.Equal(t, err.Error(), errors.Join(checkHeaders(headers)).Error())
	}
}
