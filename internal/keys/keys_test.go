package keys_test

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/keys"
)

func TestKeysCarryPrefixVersionAndTag(t *testing.T) {
	t.Parallel()
	p, err := keys.New("leaseq", "orders", 0)
	require.NoError(t, err)
	require.Equal(t, "leaseq:v1:{orders}:due", p.Key("due"))
	require.Len(t, p.All(), 17)
	p, err = keys.New("app:x", "orders", 3)
	require.NoError(t, err)
	require.Equal(t, "app:x:v1:{orders#3}:processing", p.Key("processing"))
	require.Equal(t, "app:x:v1:queues", keys.Registry("app:x"))
}

func TestNamesThatBreakTheTagAreRefused(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"", "{q}", "a{b}c", "{}", "}{", "q{", "q#1", "a b", "ü", "a\x00", strings.Repeat("x", 129)} {
		_, err := keys.New("leaseq", bad, 0)
		require.Error(t, err, "queue %q", bad)
		_, err = keys.New(bad, "q", 0)
		require.Error(t, err, "prefix %q", bad)
	}
	_, err := keys.New("leaseq", "q", -1)
	require.Error(t, err)
	_, err = keys.New(strings.Repeat("x", 128), strings.Repeat("y", 128), 0)
	require.NoError(t, err)
}

// slot is Redis Cluster's: CRC16 (XMODEM) of what stands between the first '{' and the next '}', modulo 16384.
func slot(key string) uint16 {
	if open := strings.IndexByte(key, '{'); open >= 0 {
		if end := strings.IndexByte(key[open+1:], '}'); end > 0 {
			key = key[open+1 : open+1+end]
		}
	}
	var crc uint16
	for i := 0; i < len(key); i++ {
		crc ^= uint16(key[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc % 16384
}

func TestAllKeysOfAQueueAreInOneSlotAndNoTwoQueuesShareAKey(t *testing.T) {
	t.Parallel()
	require.EqualValues(t, 12739, slot("123456789"), "the check value of CRC16/XMODEM, 0x31C3")
	const letters = "abcXYZ019._:/-"
	owner := map[string]string{}
	for n := range 10_000 {
		queue := make([]byte, 1+rand.IntN(12))
		for i := range queue {
			queue[i] = letters[rand.IntN(len(letters))]
		}
		part := n % 3
		p, err := keys.New("leaseq", string(queue), part)
		require.NoError(t, err)
		who := string(queue) + "#" + strconv.Itoa(part)
		first := slot(p.All()[0])
		for _, key := range p.All() {
			require.Equal(t, first, slot(key), key)
			if before, taken := owner[key]; taken {
				require.Equal(t, before, who, "two queues share %s", key)
			}
			owner[key] = who
		}
	}
}

// FuzzNames: a name is refused, or its keys have one hash tag, are told back into what they were made of, and belong to
// no other queue, prefix or partition.
func FuzzNames(f *testing.F) {
	f.Add("leaseq", "orders", 0)
	f.Add("leaseq", "{q}", 1)
	f.Add("a:v1:{b}", "a#1", 2)
	f.Add("a:v1", "a:v1:", 2147483647)
	f.Add("-", "}:due", -1)
	f.Add("größe", "orders\x00", 3)
	f.Fuzz(func(t *testing.T, prefix, queue string, part int) {
		p, err := keys.New(prefix, queue, part)
		valid := part >= 0 && keys.ValidateName("", prefix) == nil && keys.ValidateName("", queue) == nil
		require.Equal(t, valid, err == nil)
		if err != nil {
			return
		}
		pattern := keys.Pattern(prefix, queue)
		require.False(t, strings.ContainsAny(strings.TrimSuffix(pattern, "[}#]*"), `*?[]\^`), pattern)
		for i, key := range p.All() {
			require.Equal(t, 1, strings.Count(key, "{"))
			require.Equal(t, 1, strings.Count(key, "}"))
			require.True(t, strings.HasPrefix(key, strings.TrimSuffix(pattern, "[}#]*")), key)
			gotPart, name, ok := keys.Split(prefix, queue, key)
			require.True(t, ok, key)
			require.Equal(t, part, gotPart)
			require.Equal(t, keys.Names[i], name)
			for _, other := range []string{queue + "a", queue[:len(queue)-1], "a" + queue} {
				_, _, ok := keys.Split(prefix, other, key)
				require.False(t, ok, "%s is no key of %s", key, other)
			}
			_, _, ok = keys.Split(prefix+"a", queue, key)
			require.False(t, ok)
			require.NotEqual(t, keys.Registry(prefix), key)
		}
	})
}
