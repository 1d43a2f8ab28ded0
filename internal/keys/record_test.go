package keys_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/keys"
)

func TestRecordsLieUnderThePartitionsTag(t *testing.T) {
	t.Parallel()
	p, err := keys.New("leaseq", "orders", 0)
	require.NoError(t, err)
	require.Equal(t, "leaseq:v1:{orders}:guard:pay 1}{", p.Guard("pay 1}{"))
	require.Equal(t, "leaseq:v1:{orders}:once:10086", p.Once("10086"))
	p, err = keys.New("app", "orders", 3)
	require.NoError(t, err)
	for _, key := range []string{p.Guard("a{b}"), p.Once("}c{"), p.Guard("größe:x")} {
		require.Equal(t, slot(p.Key("jobs")), slot(key), "braces after the tag do no harm")
		require.NoError(t, p.CheckRecord(key))
		part, name, ok := keys.Split("app", "orders", key)
		require.True(t, ok)
		require.Equal(t, 3, part)
		require.True(t, keys.IsRecord(name))
	}
}

func TestOnlyRecordsOfThePartitionPassTheCheck(t *testing.T) {
	t.Parallel()
	p, err := keys.New("leaseq", "orders", 1)
	require.NoError(t, err)
	other, err := keys.New("leaseq", "orders", 0)
	require.NoError(t, err)
	foreign, err := keys.New("other", "orders", 1)
	require.NoError(t, err)
	for key, want := range map[string]string{
		"":                               "does not begin",
		other.Guard("x"):                 "does not begin with leaseq:v1:{orders#1}:",
		foreign.Once("x"):                "does not begin",
		p.Key("jobs"):                    "no idempotency record",
		p.Key("due") + "guard:x":         "no idempotency record",
		p.Guard(""):                      "is empty",
		p.Once("a\nb"):                   "control character",
		p.Guard("\xff"):                  "not valid UTF-8",
		p.Once(strings.Repeat("x", 257)): "257 bytes",
	} {
		require.ErrorContains(t, p.CheckRecord(key), want, key)
	}
	require.NoError(t, p.CheckRecord(p.Once(strings.Repeat("x", 256))))
}

func TestIDsAreTextOfBoundedLength(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{
		"": "idempotency key is empty: want 1 to 256 bytes", strings.Repeat("é", 129): "has 258 bytes", "a\xc3": "not valid UTF-8",
		"a\x00b": "U+0000 at byte 1", "\x7f": "U+007F", "ab\u0085": "U+0085 at byte 2", "\t": "U+0009",
	} {
		require.ErrorContains(t, keys.ValidateID("idempotency key", id), want)
	}
	for _, id := range []string{"a", " ", "{}", "#", "a:b", "größe", strings.Repeat("x", 256), "日本"} {
		require.NoError(t, keys.ValidateID("idempotency key", id), id)
	}
}

// FuzzRecords: what an ID or a guard's key may be gives a key of the partition's own, told back into what it was made
// of, and nothing else does.
func FuzzRecords(f *testing.F) {
	f.Add("x")
	f.Add("}:due")
	f.Add("{other}")
	f.Add("")
	f.Add("a\x7f")
	p, err := keys.New("leaseq", "q", 2)
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, id string) {
		valid := keys.ValidateID("x", id) == nil
		for _, key := range []string{p.Guard(id), p.Once(id)} {
			require.Equal(t, valid, p.CheckRecord(key) == nil, "%q", key)
			if valid {
				part, name, ok := keys.Split("leaseq", "q", key)
				require.True(t, ok)
				require.Equal(t, 2, part)
				_, of, _ := strings.Cut(name, ":")
				require.Equal(t, id, of)
				require.Equal(t, slot(p.Key("due")), slot(key))
			}
		}
	})
}
