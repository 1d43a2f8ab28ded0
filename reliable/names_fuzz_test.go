package reliable

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/wire"
)

// FuzzIDsAndKinds: an ID or a kind is taken if it keeps the rule for it, as somebody else wrote it down, and an error never
// repeats more of it than it may have.
func FuzzIDsAndKinds(f *testing.F) {
	for _, text := range []string{
		"close:10086", "größe 42 {🚚}", "", "\x00", "a\x7f", "\u0085", "\xff\xfe", "\xed\xa0\x80", "order.close.v2", "a b",
		strings.Repeat("x", 256), strings.Repeat("ü", 129), strings.Repeat("k", 128), strings.Repeat("k", 129), "\u202e\ufeff",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		sound := len(text) >= 1 && len(text) <= 256 && utf8.ValidString(text) && strings.IndexFunc(text, unicode.IsControl) < 0
		err := validateID(text)
		require.Equal(t, sound, err == nil, "%q: %v", text, err)
		if err != nil {
			require.LessOrEqual(t, len(err.Error()), 2*4*256+200)
		}
		const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:/-"
		err = wire.ValidateKind(text)
		require.Equal(t, len(text) >= 1 && len(text) <= 128 && strings.Trim(text, letters) == "", err == nil, "%q: %v", text, err)
	})
}
