package archtest

import (
	"io/fs"
	"os"
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/script"
)

const sharedLibrary = "internal/script/lua/lib.lua"

func readFile(t *testing.T, tree fs.FS, name string) string {
	t.Helper()
	text, err := fs.ReadFile(tree, name)
	require.NoError(t, err)
	return string(text)
}

func TestEveryScriptKeepsTheRules(t *testing.T) {
	t.Parallel()
	tree := os.DirFS(root(t))
	files, err := Files(tree, ".lua")
	require.NoError(t, err)
	numbered := map[string]bool{}
	for _, file := range files {
		if path.Base(file) == "lib.lua" {
			require.Empty(t, CheckLuaLibrary(readFile(t, tree, file)), file)
			continue
		}
		libraries := readFile(t, tree, sharedLibrary)
		more := path.Join(path.Dir(file), "lib.lua")
		if _, err := fs.Stat(tree, more); err == nil && more != sharedLibrary {
			libraries += readFile(t, tree, more)
		}
		loaded, err := script.Load(tree, file)
		require.NoError(t, err)
		require.Equal(t, strings.TrimSuffix(path.Base(file), ".lua"), loaded.Name, "the header's name is the file's")
		require.Empty(t, CheckLua(libraries, loaded.Header, loaded.Body()), file)
		if loaded.Numbered() {
			numbered[loaded.Name] = true
		}
	}
	for _, name := range []string{"enqueue", "claim", "settle", "cancel", "redrive", "purge", "delete", "seal", "reschedule", "bury", "edit", "import"} {
		require.True(t, numbered[name], "%s must belong to a session: a lost reply must not make it run twice", name)
	}
}

const testLibrary = `
local call = redis.call
local function now_us() return call('TIME')[1] end
local function session_check(sessions, session, number) return call('HGET', sessions, session) end
local function session_store(sessions, session, number, now, rest) call('HSET', sessions, session, number .. rest) end
local function each(command, key, list) call(command, key, unpack(list)) end
local function size(hash) return call('HLEN', hash) end
`

// A head is the header and first line of a test's script, and how a sound one goes on and ends.
const (
	writerHead   = "-- w: writes\n-- KEYS: sessions due dead\n-- ARGV: n\n-- ANSWER: OK\nlocal sessions, due, dead = unpack(KEYS)\n"
	numberedHead = "-- s: writes\n-- KEYS: sessions due dead\n-- ARGV: session number n\n-- ANSWER: OK\nlocal sessions, due, dead = unpack(KEYS)\n"
	creatorHead  = "-- enqueue: makes jobs\n-- KEYS: sessions jobs due\n-- ARGV: session number\n-- ANSWER: OK\nlocal sessions, jobs, due = unpack(KEYS)\n" + check
	hdel         = "call('HDEL', sessions, '')\n"
	check        = "local answer = session_check(sessions, ARGV[1], ARGV[2])\nif answer then\n  return answer\nend\n"
	store        = "session_store(sessions, ARGV[1], ARGV[2], now_us(), 'x')\nreturn {'OK'}\n"
)

// broken checks one script that a test wrote.
func broken(t *testing.T, text string) []string {
	t.Helper()
	files := os.DirFS(writeFile(t, "s.lua", text))
	loaded, err := script.Load(files, "s.lua")
	require.NoError(t, err)
	return CheckLua(testLibrary, loaded.Header, loaded.Body())
}

func writeFile(t *testing.T, name, text string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	require.NoError(t, os.WriteFile(path.Join(dir, name), []byte(text), 0o600))
	return dir
}

func TestSoundScriptsBreakNoRule(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		writerHead + "return {size(due), call('ZCARD', dead)} -- reads only\n",
		writerHead + hdel + "each('ZREM', due, {'a'})\nreturn {'OK'}\n",
		writerHead + hdel + "for _, zset in ipairs({due, dead}) do\n  each('ZREM', zset, ARGV)\nend\n",
		writerHead + hdel + "local place = ({due = due, dead = dead})[ARGV[1]]\ncall('ZREM', place, 'a')\n",
		writerHead + hdel + "local places = {due, dead}\nlocal one, two = places[1], call('ZCARD', due)\ncall('ZREM', one, two .. '')\n",
		writerHead + hdel + "local function drop(key)\n  call('DEL', key)\nend\ndrop(due)\n",
		numberedHead + hdel + check + "call('ZADD', due, 1, 'a')\nif ARGV[3] then\n  " + store + "end\nlocal n = 1\n" +
			"session_store(sessions, ARGV[1], ARGV[2], n, '')\nreturn {'OK'}\n",
		creatorHead +
			"if ARGV[3] then\n  call('HSET', jobs, 'a', 'b')\n  call('ZADD', due, 1, 'a')\nend\n" + store,
		creatorHead + "local function f()\n  call('HSET', jobs, 'a', 'b')\nend\nlocal function g()\n  f()\n  call('ZADD', due, 1, 'a')\nend\ng()\n" + store,
	} {
		require.Empty(t, broken(t, text), text)
	}
}

func TestBrokenRulesOfScriptsAreFound(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, want string }{
		{writerHead + "call('ZREM', due, 'a')\n" + hdel, "after its first line it has `call ( 'ZREM'"},
		{writerHead + "if ARGV[1] then\n" + hdel + "end\ncall('ZREM', due, 'a')\n", "after its first line"},
		{writerHead + "each('ZREM', due, {'a'})\n", "after its first line"},
		{writerHead + hdel + "call('ZREM', due .. '2', 'a')\n", "line 7: the key of ZREM is `due .. '2'`"},
		{writerHead + hdel + "each('ZREM', 'x' .. ARGV[1], {'a'})\n", "the key of each is `'x' .. ARGV [ 1 ]`"},
		{writerHead + "size(ARGV[1])\n", "the key of size is `ARGV [ 1 ]`"},
		{writerHead + "local key = ARGV[1]\nsize(key)\n", "the key of size is `key`"},
		{writerHead + "local key = due .. 'x'\nsize(key)\n", "the key of size is `key`"},
		{writerHead + "due = due .. 'x'\nsize(due)\n", "line 6: due holds a key and is given `due .. 'x'`"},
		{writerHead + "for _, key in ipairs({due, 'x'}) do\n  size(key)\nend\n", "the key of size is `key`"},
		{writerHead + "call('HLEN', KEYS[1])\n", "KEYS is read in the first line only"},
		{writerHead + "local tag = '}:due'\n", "'}:due' looks like a part of a key"},
		{writerHead + "local a, b = now_us(), now_us()\n", "read 2 times"},
		{writerHead + "call('TIME')\n", "now_us only"},
		{writerHead + "redis.call('HLEN', due)\n", "redis is used by no script"},
		{writerHead + "cjson.decode(ARGV[1])\n", "cjson is used by no script"},
		{writerHead + "local a = [[x]]\n", "a string in long brackets"},
		{writerHead + "--[[ x ]]\n", "a comment in long brackets"},
		{writerHead + "local a = 'x\n", "a string that does not end"},
		{numberedHead + hdel + "call('ZADD', due, 1, 'a')\n" + check + store, "its first step is not session_check"},
		{numberedHead + hdel + store, "its first step is not session_check"},
		{numberedHead + hdel + strings.Replace(check, "ARGV[2]", "ARGV[3]", 1) + store, "its first step is not session_check"},
		{numberedHead + hdel + check + "return {'OK'}\n", "nothing is stored for the session"},
		{numberedHead + hdel + check + "if ARGV[3] then\n  return {'OK'}\nend\n" + store, "line 12: a return without a session_store"},
		{numberedHead + hdel + check + strings.Replace(store, "return", "call('ZADD', due, 1, 'a')\nreturn", 1), "ZADD is the last write"},
		{numberedHead + hdel + check + "if ARGV[3] then\n  " + store + "end\n", "does not end with a return"},
		{
			creatorHead +
				"call('ZADD', due, 1, 'a')\ncall('HSET', jobs, 'a', 'b')\n" + store, "the first write is not the HSET of jobs",
		},
		{creatorHead + "local function f()\n  call('ZADD', due, 1, 'a')\n  call('HSET', jobs, 'a', 'b')\nend\nf()\n" + store, "the first write is not the HSET of jobs"},
		{creatorHead + "local function f()\n  call('HSET', jobs, 'a', 'b')\nend\ncall('ZADD', due, 1, 'a')\nf()\n" + store, "the first write is not the HSET of jobs"},
	} {
		require.Contains(t, strings.Join(broken(t, c.text), "\n"), c.want, c.text)
	}
	require.Contains(t, CheckLuaLibrary("local function f(a)\n  return call('GET', a .. 'x')\nend\n")[0], "line 2: the key of GET is `a .. 'x'`")
}
