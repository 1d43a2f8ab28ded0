package netfault

import (
	"context"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func value(t *testing.T, key string) string {
	t.Helper()
	v, err := direct(t).Get(context.Background(), key).Result()
	if err == redis.Nil {
		return ""
	}
	require.NoError(t, err)
	return v
}

func becomes(t *testing.T, key, want string) {
	t.Helper()
	c := direct(t)
	eventually(t, func() bool {
		v, err := c.Get(context.Background(), key).Result()
		return err == nil && v == want
	}, key+" becomes "+want)
}

func TestReplyDroppedAfterTheCommandRan(t *testing.T) {
	t.Parallel()
	key := newKey()
	p := listen(t, target(t))
	p.Decide(when(DropReply, "incr "+key))
	for i := 1; i <= 20; i++ {
		w := open(t, p.Addr())
		w.send(t, "ECHO before", "INCR "+key)
		w.expect(t, "$6\r\nbefore\r\n")
		w.expectReset(t)
		require.Equal(t, fmt.Sprint(i), value(t, key), "it has run when the client learns of the reset")
		require.EqualValues(t, i, p.Dropped())
	}
}

func TestReplyDroppedWholeHoweverItIsSplit(t *testing.T) {
	t.Parallel()
	key := newKey()
	p := listen(t, target(t))
	p.Chunk(3)
	p.Decide(when(DropReply, "lrange "+key+" 0 -1"))
	w := open(t, p.Addr())
	w.send(t, "RPUSH "+key+" a b c d e f g h", "LRANGE "+key+" 0 1", "LRANGE "+key+" 0 -1")
	w.expect(t, ":8\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n")
	w.expectReset(t)
}

func TestResetDoesNotOvertakeRepliesInTheSendBuffer(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" && runtime.GOOS != "darwin" {
		t.Skip("the send buffer cannot be looked into")
	}
	p := listen(t, target(t))
	p.Chunk(500) // more packets than are sent without an acknowledgement
	p.Decide(when(DropReply, "ping"))
	text := strings.Repeat("x", 200_000)
	for range 5 {
		w := open(t, p.Addr())
		w.send(t, "ECHO "+text, "PING")
		eventually(t, func() bool { return p.Commands()%2 == 0 }, "sent")
		w.expect(t, fmt.Sprintf("$%d\r\n%s\r\n", len(text), text))
		w.expectReset(t)
	}
}

func TestCommandsBehindADroppedReplyRunAndAreNotAnswered(t *testing.T) {
	t.Parallel()
	n, behind := newKey(), newKey()
	p := listen(t, target(t))
	p.Decide(when(DropReply, "incr "+n))
	w := open(t, p.Addr())
	w.send(t, "INCR "+n, "SET "+behind+" ran", "SET "+behind+" again")
	w.expectReset(t)
	becomes(t, behind, "again")
}

func TestReplyDroppedOfABlockingCommandIsWaitedFor(t *testing.T) {
	t.Parallel()
	key := newKey()
	p := listen(t, target(t))
	p.Decide(when(DropReply, "blpop"))
	w := open(t, p.Addr())
	w.send(t, "BLPOP "+key+" 0")
	w.expectSilence(t)
	require.NoError(t, direct(t).RPush(context.Background(), key, 1).Err())
	w.expectReset(t)
	assert.Zero(t, direct(t).LLen(context.Background(), key).Val(), "the element is taken")
}

func TestReplyThatNeverComesIsNoDrop(t *testing.T) {
	t.Parallel()
	p := listen(t, fake(t, func(conn net.Conn) {
		_, _ = conn.Read(make([]byte, 100))
	}))
	p.Decide(when(DropReply, "ping"))
	w := open(t, p.Addr())
	w.send(t, "PING")
	_, err := w.r.ReadByte()
	require.Error(t, err)
	assert.Zero(t, p.Dropped())
}

func TestRequestDroppedNeverRuns(t *testing.T) {
	t.Parallel()
	before, n, behind := newKey(), newKey(), newKey()
	p := listen(t, target(t))
	p.Decide(when(DropRequest, "incr "+n))
	for i := 1; i <= 200; i++ {
		w := open(t, p.Addr())
		if i%2 == 0 { // with replies before it still to come, and without
			w.send(t, "ECHO before", "SET "+before+" 1", "INCR "+n, "SET "+behind+" 1")
			w.expect(t, "$6\r\nbefore\r\n+OK\r\n")
		} else {
			w.send(t, "INCR "+n, "SET "+behind+" 1")
		}
		w.expectReset(t)
		require.EqualValues(t, i, p.Dropped())
	}
	eventually(t, func() bool { return p.Connections() == 0 }, "all connections have ended")
	assert.Equal(t, "1", value(t, before))
	assert.Empty(t, value(t, n))
	assert.Empty(t, value(t, behind))
}

func TestRequestDroppedOnlyAfterTheLastReplyArrived(t *testing.T) {
	t.Parallel()
	asked, answer := make(chan struct{}), make(chan struct{})
	p := listen(t, fake(t, func(conn net.Conn) {
		_, _ = io.ReadFull(conn, make([]byte, len(command("ECHO before"))))
		close(asked)
		<-answer
		_, _ = io.WriteString(conn, "$6\r\nbefore\r\n")
		_, _ = io.Copy(io.Discard, conn)
	}))
	p.Decide(when(DropRequest, "incr n"))
	w := open(t, p.Addr())
	w.send(t, "ECHO before")
	<-asked
	p.Delay(100 * time.Millisecond)
	close(answer)
	p.mu.Lock()
	var l *link
	for l = range p.links {
	}
	p.mu.Unlock()
	eventually(t, func() bool { return l.head() == turn{} }, "the reply is held back on its way to the client")
	w.send(t, "INCR n")
	w.expect(t, "$6\r\nbefore\r\n")
	w.expectReset(t)
}

func TestServerSeesAnOrderlyEndAndItsLateRepliesAreTaken(t *testing.T) {
	t.Parallel()
	outcome := make(chan error, 1)
	p := listen(t, fake(t, func(conn net.Conn) {
		_, _ = io.ReadFull(conn, make([]byte, len(command("ECHO a", "ECHO b"))))
		_, _ = io.WriteString(conn, "$1\r\na\r\n")
		_, err := io.Copy(io.Discard, conn) // until the client's end gets here
		for range 20 {
			if err == nil {
				_, err = io.WriteString(conn, "$1\r\nb\r\n")
			}
		}
		outcome <- err
	}))
	p.Decide(when(DropReply, "echo a"))
	w := open(t, p.Addr())
	w.send(t, "ECHO a", "ECHO b")
	w.expectReset(t)
	assert.NoError(t, <-outcome)
}

func TestHeldRequestRunsWhenReleased(t *testing.T) {
	t.Parallel()
	key := newKey()
	p := listen(t, target(t))
	p.Decide(when(Hold, "set "+key+" 1"))
	w := open(t, p.Addr())
	w.send(t, "ECHO before", "SET "+key+" 1", "ECHO behind")
	w.expect(t, "$6\r\nbefore\r\n")
	eventually(t, func() bool { return p.Held() == 1 }, "held")
	w.expectSilence(t)
	assert.Empty(t, value(t, key))

	other := open(t, p.Addr()) // other connections go on
	other.send(t, "PING")
	other.expect(t, "+PONG\r\n")

	assert.Equal(t, 1, p.ReleaseHeld())
	w.expect(t, "+OK\r\n$6\r\nbehind\r\n")
	assert.Equal(t, "1", value(t, key))
	assert.Zero(t, p.Held())
	assert.Zero(t, p.ReleaseHeld())
}

func TestHeldRequestRunsThoughTheClientHasGone(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(*Proxy, *wire){
		"closed":  func(_ *Proxy, w *wire) { _ = w.Close() },
		"reset":   func(_ *Proxy, w *wire) { reset(w.Conn) },
		"cut off": func(p *Proxy, _ *wire) { p.Cut() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := listen(t, target(t))
			key := newKey()
			p.Decide(when(Hold, "incr "+key))
			w := open(t, p.Addr())
			w.send(t, "INCR "+key, "INCR "+key, "SET "+key+":behind 1")
			eventually(t, func() bool { return p.Held() == 1 }, "held")
			leave(p, w)
			assert.Empty(t, value(t, key))

			assert.Equal(t, 1, p.ReleaseHeld())
			eventually(t, func() bool { return p.Held() == 1 }, "the second one is held anew")
			becomes(t, key, "1")
			assert.Equal(t, 1, p.ReleaseHeld())
			becomes(t, key, "2")
			becomes(t, key+":behind", "1")
			eventually(t, func() bool { return p.Connections() == 0 }, "the connection has ended")
		})
	}
}

func TestCloseEndsHeldConnections(t *testing.T) {
	t.Parallel()
	key := newKey()
	p := listen(t, target(t))
	p.Decide(when(Hold, "incr "+key))
	w := open(t, p.Addr())
	w.send(t, "INCR "+key)
	eventually(t, func() bool { return p.Held() == 1 }, "held")
	require.NoError(t, p.Close())
	w.expectReset(t)
	require.NoError(t, p.Close())
	assert.Zero(t, p.Connections())
	assert.Empty(t, value(t, key))
}

// The client repeats by itself what it got no answer for, so that the counter tells how often a command ran.
func TestDropsUnderLoadAreExact(t *testing.T) {
	t.Parallel()
	key := newKey()
	p := listen(t, target(t))
	var n, replies, requests int64
	p.Decide(func(cmd []string) Action {
		if cmd[0] != "incr" {
			return Pass
		}
		switch n++; {
		case n%50 == 0:
			replies++
			return DropReply
		case n%50 == 25:
			requests++
			return DropRequest
		}
		return Pass
	})
	c := redis.NewClient(&redis.Options{Addr: p.Addr(), MaxRetries: 10, MinRetryBackoff: -1, PoolSize: 8})
	defer c.Close()
	var wg sync.WaitGroup
	const callers, each = 8, 400
	for range callers {
		wg.Go(func() {
			for range each {
				assert.NoError(t, c.Incr(context.Background(), key).Err())
			}
		})
	}
	wg.Wait()
	require.NoError(t, p.Close())
	assert.Equal(t, fmt.Sprint(callers*each+replies), value(t, key), "each dropped reply is one more run")
	assert.Equal(t, replies+requests, p.Dropped())
	assert.EqualValues(t, callers*each, n-replies-requests)
}

func TestTargetMustBeAnAddress(t *testing.T) {
	t.Parallel()
	_, err := Listen("localhost")
	assert.ErrorContains(t, err, "want host:port")
}

func TestClientIsResetWhileTheServerIsDown(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	p := listen(t, l.Addr().String())
	dialReset(t, p.Addr())
}
