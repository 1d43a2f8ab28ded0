package reliable

import (
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestIDsSortInTheOrderTheyWereMade(t *testing.T) {
	t.Parallel()
	last := ""
	for range 100_000 {
		id := NewID()
		if id <= last {
			require.Less(t, last, id)
		}
		last = id
	}
}

func TestIDsOfManyGoroutinesAreUnique(t *testing.T) {
	t.Parallel()
	const goroutines, each = 8, 12_500
	made := make([][]string, goroutines)
	var wg sync.WaitGroup
	for g := range made {
		wg.Go(func() {
			for range each {
				made[g] = append(made[g], NewID())
			}
		})
	}
	wg.Wait()
	seen := make(map[string]bool, goroutines*each)
	for _, ids := range made {
		for _, id := range ids {
			seen[id] = true
		}
	}
	require.Len(t, seen, goroutines*each)
}

func TestIDIsAVersion7UUIDIn26Characters(t *testing.T) {
	t.Parallel()
	before := time.Now()
	for range 1000 {
		id := NewID()
		require.Len(t, id, 26)
		require.NoError(t, validateID(id))
		require.Equal(t, strings.ToLower(id), id)
		raw, err := sortable.DecodeString(id)
		require.NoError(t, err)
		u, err := uuid.FromBytes(raw)
		require.NoError(t, err)
		require.EqualValues(t, 7, u.Version())
		require.Equal(t, uuid.RFC4122, u.Variant())
		require.Equal(t, id, sortable.EncodeToString(u[:]))
		sec, nsec := u.Time().UnixTime()
		require.WithinDuration(t, before, time.Unix(sec, nsec), time.Minute)
	}
}

func TestEncodedIDsSortAsTheirBytes(t *testing.T) {
	t.Parallel()
	raw := rapid.SliceOfN(rapid.Byte(), 16, 16)
	rapid.Check(t, func(t *rapid.T) {
		a, b := raw.Draw(t, "a"), raw.Draw(t, "b")
		require.Equal(t, strings.Compare(string(a), string(b)),
			strings.Compare(sortable.EncodeToString(a), sortable.EncodeToString(b)))
	})
}

func TestIDsOfTheCallerAreChecked(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"x", "close:10086", "{a}b", "größe 1", "!", strings.Repeat("x", 256), strings.Repeat("€", 85)} {
		require.NoError(t, validateID(good), "%q", good)
	}
	for bad, want := range map[string]string{
		"":                       "job ID is empty: want 1 to 256 bytes",
		strings.Repeat("x", 257): "job ID has 257 bytes: want at most 256",
		"a\xffb":                 "not valid UTF-8",
		"a\nb":                   "control character U+000A at byte 1",
		"\x00":                   "control character U+0000 at byte 0",
		"é\u0085":                "control character U+0085 at byte 2",
		"\x7f":                   "control character U+007F",
		"\xff\t":                 "not valid UTF-8",
	} {
		require.ErrorContains(t, validateID(bad), want, "%q", bad)
	}
	require.ErrorContains(t, validateID("\xff\t"), "control character U+0009", "all problems are named")
}

func TestIDCheckAgreesWithItsRule(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.OneOf(
			rapid.String(),
			rapid.StringN(0, 300, 300),
			rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 300), func(b []byte) string { return string(b) }),
		).Draw(t, "id")
		good := len(id) >= 1 && len(id) <= 256 && utf8.ValidString(id) && strings.IndexFunc(id, unicode.IsControl) < 0
		err := validateID(id)
		require.Equal(t, good, err == nil, "%v", err)
		if err != nil {
			require.Less(t, len(err.Error()), 4000)
		}
	})
}

func BenchmarkNewID(b *testing.B) {
	for b.Loop() {
		_ = NewID()
	}
}
