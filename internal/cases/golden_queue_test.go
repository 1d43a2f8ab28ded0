package cases

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/internal/oldversion"
	"github.com/leaseq/leaseq/internal/redistest"
)

// Golden queues are what some version of this program has left in a Redis: they are never changed, only added. The flag
// has those written that are missing, each by a program built from its commit, and leaves alone those that exist.
var writeGolden = flag.Bool("write-missing-golden", false, "write golden queues that do not exist yet")

const goldenDir = "../../testdata/queues/" + keys.Version

// goldenCommits are the versions of which there is a golden queue.
var goldenCommits = []string{oldversion.First, oldversion.Second, "8e44d4672ae5f63da434c1e915894b9e837b1613"}

// A goldenQueue is one file: all keys of one queue.
type goldenQueue struct {
	About  string               `json:"about"`
	Commit string               `json:"commit"`
	Taken  int64                `json:"taken_ms"` // Redis' clock
	Keys   map[string]goldenKey `json:"keys"`     // by their names, without prefix and tag
}

// A goldenKey is one key's content, in the field of its type.
type goldenKey struct {
	Zset   map[string]float64    `json:"zset,omitempty"`
	Hash   map[string]goldenText `json:"hash,omitempty"`
	List   []goldenText          `json:"list,omitempty"`
	String goldenText            `json:"string,omitempty"`
}

// A goldenText is a string in JSON where that shows it exactly, and else {"base64": …}.
type goldenText string

type goldenBytes struct {
	Base64 []byte `json:"base64"`
}

func (g goldenText) MarshalJSON() ([]byte, error) {
	odd := func(r rune) bool { return !unicode.IsPrint(r) && r != '\n' && r != '\t' }
	if utf8.ValidString(string(g)) && !strings.ContainsFunc(string(g), odd) {
		return json.Marshal(string(g))
	}
	return json.Marshal(goldenBytes{[]byte(g)})
}

func (g *goldenText) UnmarshalJSON(text []byte) error {
	if len(text) > 0 && text[0] == '"' {
		return json.Unmarshal(text, (*string)(g))
	}
	var b goldenBytes
	err := json.Unmarshal(text, &b)
	*g = goldenText(b.Base64)
	return err
}

func goldenFile(commit string) string { return filepath.Join(goldenDir, commit[:7]+".json") }

func readGolden(t *testing.T, path string) *goldenQueue {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	g := &goldenQueue{}
	require.NoError(t, json.Unmarshal(text, g))
	return g
}

// takeGolden reads all keys of a queue on the shared server.
func takeGolden(t *testing.T, rdb *redis.Client, queue string) map[string]goldenKey {
	t.Helper()
	p, err := keys.New(keys.DefaultPrefix, queue, 0)
	require.NoError(t, err)
	all := map[string]goldenKey{}
	for _, name := range keys.Names {
		key, k := p.Key(name), goldenKey{}
		kind, err := rdb.Type(t.Context(), key).Result()
		require.NoError(t, err)
		switch kind {
		case "none":
			continue
		case "zset":
			k.Zset = map[string]float64{}
			var members []redis.Z
			members, err = rdb.ZRangeWithScores(t.Context(), key, 0, -1).Result()
			for _, z := range members {
				k.Zset[z.Member.(string)] = z.Score
			}
		case "hash":
			k.Hash = map[string]goldenText{}
			var fields map[string]string
			fields, err = rdb.HGetAll(t.Context(), key).Result()
			for field, value := range fields {
				k.Hash[field] = goldenText(value)
			}
		case "list":
			var elements []string
			elements, err = rdb.LRange(t.Context(), key, 0, -1).Result()
			for _, element := range elements {
				k.List = append(k.List, goldenText(element))
			}
		case "string":
			var value string
			value, err = rdb.Get(t.Context(), key).Result()
			k.String = goldenText(value)
		default:
			t.Fatalf("key %s is a %s", key, kind)
		}
		require.NoError(t, err)
		all[name] = k
	}
	return all
}

// restore writes the keys as those of another queue, as if so much time had passed since they were left: times that the
// keys hold are moved with it. Fences and the policy's version, which only ever grow, stay as they are.
func (g *goldenQueue) restore(t *testing.T, rdb *redis.Client, queue string, age time.Duration) (moved time.Duration) {
	t.Helper()
	p, err := keys.New(keys.DefaultPrefix, queue, 0)
	require.NoError(t, err)
	now, err := rdb.Time(t.Context()).Result()
	require.NoError(t, err)
	move := now.Add(-age).UnixMilli() - g.Taken
	_, err = rdb.TxPipelined(t.Context(), func(pipe redis.Pipeliner) error {
		for name, k := range g.Keys {
			key := p.Key(name)
			for member, score := range k.Zset {
				pipe.ZAdd(t.Context(), key, redis.Z{Member: member, Score: score + float64(move)})
			}
			for field, value := range k.Hash {
				pipe.HSet(t.Context(), key, field, movedText(t, name, field, string(value), move))
			}
			for _, element := range k.List {
				pipe.RPush(t.Context(), key, string(element))
			}
			if k.String != "" {
				pipe.Set(t.Context(), key, string(k.String), 0)
			}
		}
		return nil
	})
	require.NoError(t, err)
	return time.Duration(move) * time.Millisecond
}

// movedText moves the times of fields that hold one: when a session was last used, and when the queue was swept.
func movedText(t *testing.T, key, field, value string, move int64) string {
	t.Helper()
	at := -1
	words := strings.Split(value, " ")
	switch {
	case key == "sessions":
		at = 1
	case key == "sweep" && field != "row":
		at = 0
	}
	if at < 0 {
		return value
	}
	ms, err := strconv.ParseInt(words[at], 10, 64)
	require.NoError(t, err, "%s %s", key, value)
	words[at] = strconv.FormatInt(ms+move, 10)
	return strings.Join(words, " ")
}

// Not parallel, so that files are written before another test reads them.
func TestEveryGoldenCommitHasItsQueue(t *testing.T) {
	for _, commit := range goldenCommits {
		path := goldenFile(commit)
		_, err := os.Stat(path)
		if *writeGolden && errors.Is(err, os.ErrNotExist) {
			writeGoldenQueue(t, commit, path)
		}
		g := readGolden(t, path)
		require.Equal(t, commit, g.Commit)
		for _, name := range []string{"due", "processing", "dead", "jobs", "leases", "counts", "errors", "fence", "sessions", "holders", "sweep", "wake", "policy", "stats"} {
			require.Contains(t, g.Keys, name)
		}
	}
	files, err := filepath.Glob(filepath.Join(goldenDir, "*.json"))
	require.NoError(t, err)
	require.Len(t, files, len(goldenCommits), "golden queues are only ever added")
}

func writeGoldenQueue(t *testing.T, commit, path string) {
	t.Helper()
	redistest.NeedServer(t)
	filler := oldversion.Build(t, commit, oldversion.Filler)
	queue, o, rdb := redistest.Queue(t), redistest.Options(t), redistest.Client(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	run := exec.CommandContext(ctx, filler, "redis://"+o.Addr+"/"+strconv.Itoa(o.DB), queue)
	said, err := run.CombinedOutput()
	require.NoError(t, err, "%s", said)
	now, err := rdb.Time(t.Context()).Result()
	require.NoError(t, err)
	g := goldenQueue{
		About:  "left by internal/oldversion/filler, built from this commit",
		Commit: commit, Taken: now.UnixMilli(), Keys: takeGolden(t, rdb, queue),
	}
	text, err := json.MarshalIndent(g, "", "  ")
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(goldenDir, 0o755))
	require.NoError(t, os.WriteFile(path, append(text, '\n'), 0o644))
}
