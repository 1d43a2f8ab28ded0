package redistest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/keys"
)

// commands runs lines of words split at blanks, where @name stands for the partition's key of that name and ~ for a
// blank within a word.
func commands(t *testing.T, rdb redis.UniversalClient, p *keys.Partition, lines ...string) {
	t.Helper()
	for _, line := range lines {
		var args []any
		for _, word := range strings.Fields(line) {
			if name, isKey := strings.CutPrefix(word, "@"); isKey {
				word = strings.TrimSuffix(p.Key("due"), "due") + name
			}
			args = append(args, strings.ReplaceAll(word, "~", " "))
		}
		require.NoError(t, rdb.Do(context.Background(), args...).Err(), line)
	}
}

// inOrder are the keys of a queue in which nothing is wrong.
var inOrder = []string{
	"ZADD @due 1700000000000 d1 1700000000001 d2",
	"ZADD @processing 1700000000000 p1 1700000000000 p2",
	"ZADD @dead 1700000000000 x1",
	"ZADD @done 1700000000000 a1 1700000000000 a2",
	"HSET @jobs d1 . d2 . p1 . p2 . x1 .",
	"HSET @leases p1 1700000000000001:1-ff:7 p2 !1700000000000002:1-ff:7",
	"HSET @counts p1 1~0~0~-~-~- x1 5~1~0~-~-~-",
	"HSET @errors x1 boom",
	"HSET @results a1 done",
	"SET @fence 1700000000000002",
	"HSET @sessions 1-ff 7~1700000000000~1700000000000001~2~1700000000000 2-ff 0~1700000000000~",
	"HSET @holders 1-ff host/1",
	"HSET @sweep swept 1700000000000 grace 0 row 3",
	"RPUSH @wake 1",
	"SET @rate whatever",
	"HSET @policy lease_ms 15000",
	"HSET @stats enqueued 9 claimed 9 acked 2 nacked 1 released 1 buried 1 expired 1 cancelled_processing 1 cancelled 4",
	"HSET @guard:{a}:b owner 1",
	"PEXPIRE @guard:{a}:b 60000",
	"HSET @once:x owner 1",
	"PEXPIRE @once:x 60000",
}

func TestCheckQueueFindsNothingInAnEmptyOrOrderlyQueue(t *testing.T) {
	t.Parallel()
	rdb := Client(t)
	queue := Queue(t)
	CheckQueue(t, rdb, keys.DefaultPrefix, queue)
	for _, partition := range []int{0, 1, 12} {
		p, err := keys.New(keys.DefaultPrefix, queue, partition)
		require.NoError(t, err)
		commands(t, rdb, p, inOrder...)
	}
	CheckQueue(t, rdb, keys.DefaultPrefix, queue)
	CheckQueue(t, rdb, "other", queue)
}

func TestCheckQueueFindsEveryDisorder(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ do, want string }{
		"in two places":                {"ZADD @dead 1 d1", `in due and dead: "d1"`},
		"done and due":                 {"ZADD @done 1 d1", `in due and done: "d1"`},
		"due without a record":         {"HDEL @jobs d1", `in due without a record: "d1"`},
		"processing without a record":  {"HDEL @jobs p2", `in processing without a record: "p2"`},
		"dead without a record":        {"HDEL @jobs x1", `in dead without a record: "x1"`},
		"record without a place":       {"ZREM @due d1 d2", `a record of a job that is in none of due, processing, dead: "d1", "d2"`},
		"record of a done job":         {"HSET @jobs a1 .", `a record of a job that is in none of due, processing, dead: "a1"`},
		"counts of nobody":             {"HSET @counts a1 1", `counts of a job that is in none of due, processing, dead: "a1"`},
		"errors of nobody":             {"HSET @errors nobody 1", `errors of a job that is in none of due, processing, dead: "nobody"`},
		"result of a dead job":         {"HSET @results x1 1", `a result of a job that is not in done: "x1"`},
		"lease on a due job":           {"HSET @leases d1 1:1-ff:1", `a lease on a job that is not in processing: "d1"`},
		"processing without a lease":   {"HDEL @leases p1", `in processing without a lease: "p1"`},
		"token of another form":        {"HSET @leases p1 17", `the token of "p1" is "17"`},
		"fence given twice":            {"HSET @leases p1 1700000000000002:1-ff:7", `"p1" and "p2" were given the same fence 1700000000000002`},
		"fence above the highest":      {"SET @fence 1700000000000001", `the token of "p2" has the fence 1700000000000002, above the highest given out, 1700000000000001`},
		"fence missing":                {"DEL @fence", `the token of "p1" has the fence`},
		"fence no number":              {"SET @fence 1.7e15", `fence is "1.7e15"`},
		"session of another form":      {"HSET @sessions 3-ff seven", `session "3-ff" holds "seven"`},
		"holder without a session":     {"HDEL @sessions 1-ff", `a holder's name without its session: "1-ff"`},
		"score with a fraction":        {"ZADD @due 1.5 d1", `"d1" is in due at 1.5`},
		"score without end":            {"ZADD @processing -inf p1", `"p1" is in processing at -Inf`},
		"wake twice":                   {"RPUSH @wake 1", "wake holds 2 elements"},
		"sweep with another field":     {"HSET @sweep leader me", `sweep holds "leader" = "me"`},
		"sweep with no number":         {"HSET @sweep grace soon", `sweep holds "grace" = "soon"`},
		"too many gaps in a row":       {"HSET @sweep row 4", "sweep's row is 4"},
		"counter with no number":       {"HSET @stats dead many", `the counter dead is "many"`},
		"counter below zero":           {"HINCRBY @stats dead -1", `the counter dead is "-1"`},
		"stats out of balance":         {"HINCRBY @stats claimed 1", "stats do not balance: claimed 10, but acked 2, nacked 1, released 1, buried 1, expired 1, cancelled_processing 1 and 2 in processing make 9"},
		"a place that expires":         {"PEXPIRE @due 100000", "due has a TTL of 1m"},
		"a key of another type":        {"SET @done 1", "done is a string, want a zset"},
		"a rate of another type":       {"SET @policy 1", "policy is a string, want a hash"},
		"an undocumented key":          {"SET @lock 1", `:lock" is not documented`},
		"a record that never expires":  {"PERSIST @guard:{a}:b", `:guard:{a}:b" has no TTL`},
		"a record of another type":     {"SET @once:x 1 EX 60", `:once:x" is a string, want a hash`},
		"a name that begins as a name": {"SET @due:x 1", `:due:x" is not documented`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := Client(t)
			queue := BrokenQueue(t)
			p, err := keys.New(keys.DefaultPrefix, queue, 0)
			require.NoError(t, err)
			commands(t, rdb, p, inOrder...)
			commands(t, rdb, p, c.do)
			r := &recorder{name: t.Name()}
			CheckQueue(r, rdb, keys.DefaultPrefix, queue)
			require.Len(t, r.errors, 1, "one report with everything")
			assert.Contains(t, r.errors[0], c.want)
		})
	}
}

func TestCheckQueueFindsKeysBesideTheTag(t *testing.T) {
	t.Parallel()
	rdb := Client(t)
	queue := BrokenQueue(t)
	p, err := keys.New(keys.DefaultPrefix, queue, 0)
	require.NoError(t, err)
	base := strings.TrimSuffix(p.Key("due"), "}:due")
	strangers := []string{base + "}due", base + "#0}:due", base + "#01}:due", base + "#x}:due", base + "#1}due", base + "}:"}
	for _, key := range strangers {
		require.NoError(t, rdb.Set(context.Background(), key, 1, 0).Err())
	}
	problems, err := judge(t.Context(), rdb, keys.DefaultPrefix, queue)
	require.NoError(t, err)
	require.Len(t, problems, len(strangers))
	for _, key := range strangers {
		assert.Contains(t, strings.Join(problems, "\n"), fmt.Sprintf("key %q is not documented", key))
	}
}

func TestCheckQueueLooksIntoEveryPartition(t *testing.T) {
	t.Parallel()
	rdb := Client(t)
	queue := BrokenQueue(t)
	p, err := keys.New(keys.DefaultPrefix, queue, 3)
	require.NoError(t, err)
	commands(t, rdb, p, "ZADD @due 1 a")
	problems, err := judge(t.Context(), rdb, keys.DefaultPrefix, queue)
	require.NoError(t, err)
	assert.Equal(t, []string{`partition 3: in due without a record: "a"`}, problems)
}

func TestCheckQueueNamesFewOfManyIDs(t *testing.T) {
	t.Parallel()
	rdb := Mini(t)
	p, err := keys.New(keys.DefaultPrefix, "many", 0)
	require.NoError(t, err)
	for i := range 12 {
		commands(t, rdb, p, fmt.Sprintf("ZADD @due 1 id%02d", i))
	}
	problems, err := judge(t.Context(), rdb, keys.DefaultPrefix, "many")
	require.NoError(t, err)
	assert.Equal(t, []string{`partition 0: in due without a record: "id00", "id01", "id02", "id03", "id04" and 7 more`}, problems)
}

func TestCheckQueueSaysThatItCouldNotLook(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialTimeout: time.Second})
	defer rdb.Close()
	r := &recorder{name: t.Name()}
	CheckQueue(r, rdb, keys.DefaultPrefix, "q")
	assert.Contains(t, r.end(), "cannot be checked")

	r = &recorder{name: t.Name()}
	CheckQueue(r, Mini(t), keys.DefaultPrefix, "{bad}")
	assert.Contains(t, r.end(), "only A-Z")
}

func TestTypesNameTheFixedKeys(t *testing.T) {
	t.Parallel()
	assert.ElementsMatch(t, keys.Names, ids(types))
}
