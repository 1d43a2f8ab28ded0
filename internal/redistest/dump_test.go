package redistest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/keys"
)

func TestDumpShowsContentsWhateverTheirOrderAndEncoding(t *testing.T) {
	t.Parallel()
	rdb := Client(t)
	queue := BrokenQueue(t)
	p, err := keys.New(keys.DefaultPrefix, queue, 0)
	require.NoError(t, err)
	commands(t, rdb, p,
		"ZADD @due 3 c 1.5 b -2 a", "HSET @jobs b 2 a 1", "SET @fence 17", "RPUSH @wake y x",
		"HSET @guard:g owner me", "EXPIRE @guard:g 100", "SADD @odd 2 1")
	want := map[string]string{
		p.Key("due"):  "zset\n\"a\" at -2\n\"b\" at 1.5\n\"c\" at 3",
		p.Key("jobs"): "hash\n\"a\" = \"1\"\n\"b\" = \"2\"",
		p.Key("wake"): "list\n\"y\"\n\"x\"",
	}
	got := Dump(t, rdb, keys.DefaultPrefix, queue)
	for key, text := range want {
		assert.Equal(t, text, got[key])
	}
	assert.Equal(t, "string\n\"17\"", got[p.Key("fence")])
	assert.Len(t, got, 6)
	assert.Equal(t, want, Dump(t, rdb, keys.DefaultPrefix, queue, "guard:g", "odd", "fence"), "what is left out")

	big := make([]byte, 200) // another encoding, then the same contents again
	require.NoError(t, rdb.HSet(context.Background(), p.Key("jobs"), "b", big).Err())
	assert.NotEqual(t, got, Dump(t, rdb, keys.DefaultPrefix, queue))
	commands(t, rdb, p, "DEL @due", "ZADD @due -2 a 3 c 1.5 b", "HSET @jobs b 2")
	assert.Equal(t, got, Dump(t, rdb, keys.DefaultPrefix, queue))
}

func TestDumpSeesOneByteOfDifference(t *testing.T) {
	t.Parallel()
	rdb := Client(t)
	queue := BrokenQueue(t)
	p, err := keys.New(keys.DefaultPrefix, queue, 1)
	require.NoError(t, err)
	commands(t, rdb, p, "HSET @stats a 1", "HSET @jobs j 1", "ZADD @due 1700000000000 j")
	seen := Dump(t, rdb, keys.DefaultPrefix, queue)
	require.Len(t, seen, 3)
	for _, c := range []string{"HSET @stats a 2", "HSET @jobs j 1~", "ZADD @due 1700000000001 j", "SET @rate 1", "DEL @due"} {
		commands(t, rdb, p, c)
		next := Dump(t, rdb, keys.DefaultPrefix, queue)
		assert.NotEqual(t, seen, next, c)
		seen = next
	}
	assert.Empty(t, Dump(t, rdb, "other", queue))
}
