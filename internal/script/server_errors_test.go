package script

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/redisproc"
	"github.com/leaseq/leaseq/internal/redistest"
)

// ownDesk works on a server of its own, whose settings the test may break. user and password are the sessions'.
func ownDesk(t *testing.T, server *redisproc.Server, user, password string) *desk {
	t.Helper()
	direct := redis.NewClient(&redis.Options{Addr: server.Addr()})
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: user, Password: password})
	t.Cleanup(func() { _, _ = direct.Close(), rdb.Close() })
	return newDesk(t, "own", rdb, direct)
}

// tries counts the scripts that a client sends.
type tries struct{ n int }

func (c *tries) DialHook(next redis.DialHook) redis.DialHook { return next }
func (c *tries) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if name := cmd.Name(); name == "evalsha" || name == "eval" {
			c.n++
		}
		return next(ctx, cmd)
	}
}
func (c *tries) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// refusedAtOnce runs a call that the server refuses, and asserts that it was not tried again.
func refusedAtOnce(t *testing.T, d *desk, c *Call, most int, want error) {
	t.Helper()
	counter := &tries{}
	d.rdb.AddHook(counter)
	require.NoError(t, d.Do(t.Context(), c))
	require.ErrorIs(t, c.Err, want)
	var server *ServerError
	require.ErrorAs(t, c.Err, &server)
	assert.LessOrEqual(t, counter.n, most, "tries of the call and of the opening of its session")
}

func TestMissingPasswordIsTypedAtOnce(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t, nil)
	d := ownDesk(t, server, "", "")
	require.NoError(t, d.direct.ConfigSet(t.Context(), "requirepass", "secret").Err())
	refusedAtOnce(t, d, count("x"), 1, ErrAuth)
}

func TestWrongPasswordIsTypedAtOnce(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t, nil)
	d := ownDesk(t, server, "someone", "wrong")
	refusedAtOnce(t, d, count("x"), 1, ErrAuth)
}

func TestMissingPermissionIsTypedAtOnceAndGrantedLater(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t, nil)
	d := ownDesk(t, server, "worker", "pw")
	ctx := t.Context()
	require.NoError(t, d.direct.Do(ctx, "acl", "setuser", "worker", "on", ">pw", "~*", "+@all", "-@scripting").Err())
	refusedAtOnce(t, d, count("x"), 1, ErrAuth)
	require.NoError(t, d.direct.Do(ctx, "acl", "setuser", "worker", "+@scripting").Err())
	c := count("x")
	require.NoError(t, d.Do(ctx, c))
	require.NoError(t, c.Err)
	assert.Equal(t, "1", c.Rest)
}

// pour writes before it frees anything, as a producer's script does.
const pour = `-- pour: writes more
-- KEYS: sessions stats
-- ARGV: session number field
-- ANSWER: OK value | AGAIN value | STALE | NOSESSION
local sessions, stats = unpack(KEYS)
local answer = session_check(sessions, ARGV[1], ARGV[2])
if answer then
  return answer
end
local value = int(call('HINCRBY', stats, ARGV[3], 1))
session_store(sessions, ARGV[1], ARGV[2], now_us(), value)
return {'OK', value}
`

func TestFullMemoryIsTypedAtOnceWhileSessionsGoOn(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t, nil)
	d := ownDesk(t, server, "", "")
	ctx := t.Context()
	script, err := loadText(pour)
	require.NoError(t, err)
	require.NoError(t, d.direct.ConfigSet(ctx, "maxmemory", "1").Err())

	c := &Call{Op: "pour", Script: script, Args: []any{"x"}}
	refusedAtOnce(t, d, c, 3, ErrOutOfMemory) // the opening, EVALSHA, EVAL
	assert.Zero(t, d.stat(t, "x"))

	for want := 1; want <= 3; want++ { // what frees memory first runs to its end, in the session that was opened meanwhile
		c = count("y")
		require.NoError(t, d.Do(ctx, c))
		require.NoError(t, c.Err)
		assert.Equal(t, want, d.stat(t, "y"))
	}
	require.NoError(t, d.direct.ConfigSet(ctx, "maxmemory", "0").Err())
	c = &Call{Op: "pour", Script: script, Args: []any{"x"}}
	require.NoError(t, d.Do(ctx, c))
	require.NoError(t, c.Err)
	assert.Equal(t, 1, d.stat(t, "x"))
	require.NoError(t, d.Close(ctx))
}

func TestServerThatCannotSaveIsTypedAtOnce(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t, &redisproc.Options{Args: []string{"--save", "3600 1000000"}})
	d := ownDesk(t, server, "", "")
	ctx := t.Context()
	require.NoError(t, d.direct.Set(ctx, "something", "to save", 0).Err())
	require.NoError(t, os.RemoveAll(server.Dir()))
	require.NoError(t, d.direct.BgSave(ctx).Err())
	require.Eventually(t, func() bool {
		return strings.Contains(d.direct.Info(ctx, "persistence").Val(), "rdb_last_bgsave_status:err")
	}, patience, pollEvery)
	refusedAtOnce(t, d, count("x"), 2, ErrMisconf)

	require.NoError(t, d.direct.ConfigSet(ctx, "stop-writes-on-bgsave-error", "no").Err())
	c := count("x")
	require.NoError(t, d.Do(ctx, c))
	require.NoError(t, c.Err)
	require.NoError(t, d.direct.ConfigSet(ctx, "save", "").Err(), "else it tries to save once more when it ends")
	require.NoError(t, d.Close(ctx))
}
