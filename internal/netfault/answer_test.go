package netfault

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAnAnswerStandsForTheReplyAndTheCommandNeverRuns(t *testing.T) {
	t.Parallel()
	key := newKey()
	p := listen(t, target(t))
	p.Decide(when(Answer("-BUSY try later\r\n"), "incr "+key))
	w := open(t, p.Addr())
	w.send(t, "INCR "+key)
	w.expect(t, "-BUSY try later\r\n")
	pings(t, w) // the connection goes on
	w.send(t, "INCR "+key)
	w.expect(t, "-BUSY try later\r\n")
	p.Decide(nil)
	w.send(t, "INCR "+key)
	w.expect(t, ":1\r\n")
	assert.EqualValues(t, 4, p.Commands())
	assert.Zero(t, p.Dropped())
}

// Between, before and behind replies of the server, in one pipeline, in packets of any size.
func TestAnswersKeepTheOrderOfAPipeline(t *testing.T) {
	t.Parallel()
	for _, chunk := range []int{0, 1, 5} {
		t.Run(fmt.Sprint("packets of ", chunk), func(t *testing.T) {
			t.Parallel()
			p := listen(t, target(t))
			p.Chunk(chunk)
			p.Decide(when(Answer(":7\r\n"), "get"))
			w := open(t, p.Addr())
			var lines []string
			var want strings.Builder
			for i := range 300 {
				if i%7 == 0 || i%5 < 2 {
					lines = append(lines, "GET x")
					want.WriteString(":7\r\n")
					continue
				}
				lines = append(lines, fmt.Sprintf("ECHO %d", i))
				text := fmt.Sprint(i)
				fmt.Fprintf(&want, "$%d\r\n%s\r\n", len(text), text)
			}
			w.send(t, lines...)
			w.expect(t, want.String())
			pings(t, w)
		})
	}
}

// An answer waits for the replies before it, however long the server takes, and does not wait for those behind it.
func TestAnAnswerWaitsForItsTurnAndForNothingElse(t *testing.T) {
	t.Parallel()
	key := newKey()
	p := listen(t, target(t))
	p.Decide(when(Answer("+made up\r\n"), "get"))
	w := open(t, p.Addr())
	w.send(t, "BLPOP "+key+" 0", "GET x", "GET x", "BLPOP "+key+" 0")
	w.expectSilence(t)
	require.NoError(t, direct(t).RPush(context.Background(), key, "a").Err())
	want := fmt.Sprintf("*2\r\n$%d\r\n%s\r\n$1\r\na\r\n", len(key), key)
	w.expect(t, want+"+made up\r\n+made up\r\n")
	w.expectSilence(t)
	require.NoError(t, direct(t).RPush(context.Background(), key, "a").Err())
	w.expect(t, want)
}

func TestADropBehindAnAnswerComesAfterIt(t *testing.T) {
	t.Parallel()
	for _, action := range []Action{DropReply, DropRequest} {
		t.Run(string(action), func(t *testing.T) {
			t.Parallel()
			key := newKey()
			p := listen(t, target(t))
			p.Decide(func(cmd []string) Action {
				switch cmd[0] {
				case "GET":
					return Answer("$-1\r\n")
				case "INCR":
					return action
				}
				return Pass
			})
			for range 20 {
				w := open(t, p.Addr())
				w.send(t, "ECHO a", "GET x", "INCR "+key)
				w.expect(t, "$1\r\na\r\n$-1\r\n")
				w.expectReset(t)
			}
			assert.EqualValues(t, 20, p.Dropped())
		})
	}
}

func TestAnswersUnderLoadHitExactlyTheirCommands(t *testing.T) {
	t.Parallel()
	key := newKey()
	p := listen(t, target(t))
	n, answered := 0, 0
	p.Decide(func(cmd []string) Action {
		if cmd[0] != "incr" {
			return Pass
		}
		if n++; n%3 != 0 {
			return Pass
		}
		answered++
		return Answer("-OOM command not allowed\r\n")
	})
	c := redis.NewClient(&redis.Options{Addr: p.Addr(), MaxRetries: -1, PoolSize: 4})
	defer c.Close()
	const rounds, each = 100, 20
	failed := 0
	for range rounds {
		cmds, _ := c.Pipelined(context.Background(), func(pipe redis.Pipeliner) error {
			for range each {
				pipe.Incr(context.Background(), key)
			}
			return nil
		})
		for _, cmd := range cmds {
			if redis.HasErrorPrefix(cmd.Err(), "OOM") {
				failed++
			} else {
				require.NoError(t, cmd.Err())
			}
		}
	}
	require.NoError(t, p.Close())
	assert.Equal(t, answered, failed)
	assert.Equal(t, fmt.Sprint(rounds*each-answered), value(t, key))
}

func TestHangUpIsAnOrderlyEndAndTheCommandNeverRuns(t *testing.T) {
	t.Parallel()
	key := newKey()
	p := listen(t, target(t))
	p.Decide(when(HangUp, "incr "+key))
	for i := 1; i <= 20; i++ {
		w := open(t, p.Addr())
		w.send(t, "ECHO a", "INCR "+key)
		w.expect(t, "$1\r\na\r\n")
		rest, err := io.ReadAll(w.r)
		require.NoError(t, err, "the end of the stream, and no reset")
		require.Empty(t, rest)
		require.EqualValues(t, i, p.Dropped())
	}
	assert.Empty(t, value(t, key))
}

func TestSilencedConnectionsStayDeadWhileNewOnesWork(t *testing.T) {
	t.Parallel()
	p := listen(t, target(t))
	key := newKey()
	old := make([]*wire, 5)
	for i := range old {
		old[i] = open(t, p.Addr())
		pings(t, old[i])
	}
	require.Equal(t, 5, p.Silence())
	require.Zero(t, p.Silence(), "they are silent already")
	for _, w := range old {
		w.send(t, "INCR "+key)
	}
	fresh := open(t, p.Addr())
	pings(t, fresh)

	p.BlackHole(true)
	p.BlackHole(false) // ends only what it has begun
	p.Restore()
	for _, w := range old {
		w.expectSilence(t)
	}
	pings(t, open(t, p.Addr()))
	assert.Empty(t, value(t, key), "what was sent into a silent connection never arrives")
}

func TestSilenceSwallowsTheReplyThatWasOnItsWayAndHidesBothEnds(t *testing.T) {
	t.Parallel()
	asked, answer, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	p := listen(t, fake(t, func(conn net.Conn) {
		_, _ = io.ReadFull(conn, make([]byte, len(command("PING"))))
		close(asked)
		<-answer
		_, _ = io.WriteString(conn, "+PONG\r\n")
		_, _ = io.Copy(io.Discard, conn)
		close(ended)
	}))
	w := open(t, p.Addr())
	w.send(t, "PING")
	<-asked
	require.Equal(t, 1, p.Silence())
	close(answer)
	w.expectSilence(t)
	require.NoError(t, w.Close())
	select {
	case <-ended:
		t.Fatal("the server learnt that the client has gone")
	case <-time.After(50 * time.Millisecond):
	}
	require.NoError(t, p.Close())
	<-ended
}
