package script

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// reply is an error reply as a client gives it.
type reply string

func (r reply) Error() string { return string(r) }
func (r reply) RedisError()   {}

func TestRepliesThatSayNotExecuted(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"LOADING Redis is loading the dataset in memory",
		"READONLY You can't write against a read only replica.",
		"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
		"CLUSTERDOWN Hash slot not served",
		"TRYAGAIN Multiple keys request during rehashing of slot",
		"MOVED 3999 127.0.0.1:6381",
		"ASK 3999 127.0.0.1:6381",
		"NOREPLICAS Not enough good replicas to write.",
		"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
		"NOSCRIPT No matching script. Please use EVAL.",
		"UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)",
		"ERR max number of clients reached",
		"ERR Error running script (call to f_0a): @user_script:3: @user_script: 3: -READONLY You can't write against a read only replica.",
		"ERR Error running script (call to f_0a): @user_script:3: -NOREPLICAS Not enough good replicas to write.",
	} {
		what, err := classify(fmt.Errorf("wrapped: %w", reply(text)))
		assert.Equal(t, notExecuted, what, text)
		assert.ErrorIs(t, err, reply(text), "the client's error is kept")
		assert.True(t, NotExecuted(reply(text)), text)
	}
}

func TestRepliesThatRefuse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct {
		code string
		is   error
	}{
		"OOM command not allowed when used memory > 'maxmemory'. script: ab, on @user_script:1.":                                               {"OOM", ErrOutOfMemory},
		"MISCONF Redis is configured to save RDB snapshots":                                                                                    {"MISCONF", ErrMisconf},
		"NOAUTH Authentication required.":                                                                                                      {"NOAUTH", ErrAuth},
		"WRONGPASS invalid username-password pair or user is disabled.":                                                                        {"WRONGPASS", ErrAuth},
		"ERR The user executing the script can't run this command or subcommand script: d3c2, on @user_script:1.":                              {"NOPERM", ErrAuth},
		"NOPERM ACL failure in script: User x has no permissions to run the 'zcard' command script: d3c2":                                      {"NOPERM", ErrAuth},
		"NOPERM this user has no permissions to run the 'evalsha' command":                                                                     {"NOPERM", ErrAuth},
		"WRONGTYPE Operation against a key holding the wrong kind of value":                                                                    {"WRONGTYPE", nil},
		"ERR unknown command 'EVALSHA'":                                                                                                        {"ERR", nil},
		"BUSYGROUP Consumer Group name already exists":                                                                                         {"BUSYGROUP", nil},
		"ERR Error running script (call to f_0a): @user_script:12: @user_script: 12: -OOM command not allowed when used memory > 'maxmemory'.": {"OOM", ErrOutOfMemory},
		"ERR Error running script (call to f_0a): @user_script:12: -MISCONF Redis is configured to save RDB snapshots":                         {"MISCONF", ErrMisconf},
		"ERR Error running script (call to f_0a): @user_script:4: user_script:4: attempt to index a nil value":                                 {"ERR", nil},
		"ERR Error running script (call to f_0a): @user_script:4: Script attempted to access nonexistent global variable 'x'":                  {"ERR", nil},
		"-": {"-", nil},
		"":  {"", nil},
	} {
		what, err := classify(reply(text))
		assert.Equal(t, refused, what, text)
		var server *ServerError
		require.ErrorAs(t, err, &server, text)
		assert.Equal(t, want.code, server.Code, text)
		assert.Equal(t, text, server.Error())
		for _, sentinel := range []error{ErrOutOfMemory, ErrMisconf, ErrAuth} {
			assert.Equal(t, sentinel == want.is, errors.Is(err, sentinel), "%s is %v", text, sentinel)
		}
		assert.False(t, NotExecuted(reply(text)), text)
		assert.Equal(t, err, Typed(reply(text)))
	}
}

func TestFailedConnectionsSayNotExecuted(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{
		"dial":           &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)},
		"wrapped dial":   fmt.Errorf("redis: %w", &net.OpError{Op: "dial", Err: syscall.ETIMEDOUT}),
		"pool timeout":   redis.ErrPoolTimeout,
		"pool exhausted": fmt.Errorf("wrapped: %w", redis.ErrPoolExhausted),
	} {
		what, _ := classify(err)
		assert.Equal(t, notExecuted, what, name)
	}
}

func TestLostConnectionsLeaveItOpen(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{
		"EOF":            io.EOF,
		"unexpected EOF": io.ErrUnexpectedEOF,
		"reset":          &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)},
		"broken pipe":    &net.OpError{Op: "write", Net: "tcp", Err: os.NewSyscallError("write", syscall.EPIPE)},
		"timeout":        &net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded},
		"context":        context.DeadlineExceeded,
		"anything else":  errors.New("a word that nobody knows"),
	} {
		what, same := classify(err)
		assert.Equal(t, unknown, what, name)
		assert.Equal(t, err, same, name)
		assert.False(t, NotExecuted(err), name)
	}
	what, err := classify(nil)
	assert.Equal(t, answered, what)
	assert.NoError(t, err)
}

func TestAnAnswerOfAnUnknownShapeIsNotAskedForAgain(t *testing.T) {
	t.Parallel()
	what, err := classify(&ReplyError{Script: "x", Reply: int64(7)})
	assert.Equal(t, refused, what, "the same question would get the same answer for ever")
	assert.ErrorContains(t, err, `script x answered "7"`)
}

func TestClosedClientIsRefused(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	require.NoError(t, rdb.Close())
	what, err := classify(rdb.Ping(t.Context()).Err())
	assert.Equal(t, refused, what)
	assert.ErrorIs(t, err, redis.ErrClosed)
}

func TestUnreachableServerSaysNotExecuted(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	rdb := redis.NewClient(&redis.Options{Addr: listener.Addr().String(), MaxRetries: -1, DialerRetries: 1})
	defer rdb.Close()
	err = rdb.Ping(t.Context()).Err()
	assert.True(t, NotExecuted(err), "%v", err)
}
