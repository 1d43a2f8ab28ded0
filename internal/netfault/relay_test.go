package netfault

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fake is a server that treats its first connection as a test says.
func fake(t *testing.T, serve func(conn net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var done sync.WaitGroup
	done.Go(func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		serve(conn)
	})
	t.Cleanup(func() {
		_ = l.Close()
		done.Wait()
	})
	return l.Addr().String()
}

func TestClientsWorkThroughTheProxy(t *testing.T) {
	t.Parallel()
	for _, protocol := range []int{2, 3} {
		for _, chunk := range []int{0, 1, 7} {
			t.Run(fmt.Sprintf("RESP%d in packets of %d", protocol, chunk), func(t *testing.T) {
				t.Parallel()
				p := listen(t, target(t))
				p.Chunk(chunk)
				var asked int
				p.Decide(func([]string) Action { asked++; return Pass })
				c := client(t, p.Addr(), protocol)
				key := newKey()
				ctx := context.Background()
				value := strings.Repeat("\r\n$3\r\n>2\r\n*", 300)
				for i := range 10 {
					cmds, err := c.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
						pipe.HSet(ctx, key, fmt.Sprint(i), value)
						pipe.HGetAll(ctx, key)
						pipe.Get(ctx, key) // WRONGTYPE
						pipe.Ping(ctx)
						return nil
					})
					require.ErrorContains(t, err, "WRONGTYPE")
					got := cmds[1].(*redis.MapStringStringCmd).Val()
					require.Len(t, got, i+1)
					require.Equal(t, value, got[fmt.Sprint(i)])
				}
				require.NoError(t, c.Del(ctx, key).Err())
				commands := p.Commands()
				require.NoError(t, p.Close())
				assert.GreaterOrEqual(t, commands, int64(10*6+1))
				assert.Equal(t, commands, int64(asked), "asked once for every command")
				assert.Zero(t, p.Dropped())
			})
		}
	}
}

func TestAPipelineOfManyCommandsIsAnsweredInOrder(t *testing.T) {
	t.Parallel()
	p := listen(t, target(t))
	w := open(t, p.Addr())
	const n = 20_000
	go func() {
		var b bytes.Buffer
		for i := range n {
			b.Write(command(fmt.Sprintf("ECHO %d", i)))
		}
		_, _ = w.Write(b.Bytes())
	}()
	for i := range n {
		s := fmt.Sprint(i)
		w.expect(t, fmt.Sprintf("$%d\r\n%s\r\n", len(s), s))
	}
	assert.EqualValues(t, n, p.Commands())
}

func TestALargeCommandAndReplyPass(t *testing.T) {
	t.Parallel()
	p := listen(t, target(t))
	c := client(t, p.Addr(), 3)
	key, value := newKey(), strings.Repeat("0123456789abcdef", 1<<20) // 16 MiB
	ctx := context.Background()
	require.NoError(t, c.Set(ctx, key, value, 0).Err())
	got, err := c.GetDel(ctx, key).Result()
	require.NoError(t, err)
	assert.True(t, value == got)
}

func TestDecideSeesTheFirstArguments(t *testing.T) {
	t.Parallel()
	p := listen(t, target(t))
	seen := make(chan []string, 1)
	p.Decide(func(cmd []string) Action { seen <- cmd; return "no action" })
	w := open(t, p.Addr())
	w.send(t, "eValSha ffff 1 decide:key "+strings.Repeat("a", 300))
	assert.Equal(t, []string{"eValSha", "ffff", "1", "decide:key", strings.Repeat("a", 256)}, <-seen)
	w.expect(t, "-NOSCRIPT") // an unknown action passes
	p.Decide(nil)
	w.send(t, "PING")
	_, err := w.r.ReadString('\n')
	require.NoError(t, err)
	w.expect(t, "+PONG\r\n")
	assert.Empty(t, seen)
	assert.EqualValues(t, 2, p.Commands())
}

func TestPushFramesAreNoReplies(t *testing.T) {
	t.Parallel()
	p := listen(t, target(t))
	p.Decide(when(DropReply, "echo lost"))
	key := newKey()
	w := open(t, p.Addr())
	w.send(t, "HELLO 3", "CLIENT TRACKING ON", "SET "+key+" 1", "GET "+key, "ECHO ready")
	read := ""
	for !strings.HasSuffix(read, "ready\r\n") {
		line, err := w.r.ReadString('\n')
		require.NoError(t, err)
		read += line
	}
	require.NoError(t, direct(t).Set(context.Background(), key, 2, 0).Err())
	w.expect(t, fmt.Sprintf(">2\r\n$10\r\ninvalidate\r\n*1\r\n$%d\r\n%s\r\n", len(key), key))
	w.send(t, "PING", "ECHO lost")
	w.expect(t, "+PONG\r\n")
	w.expectReset(t)
	assert.EqualValues(t, 1, p.Dropped())
}

func TestRepliesOfRESP3AreMatchedWhole(t *testing.T) {
	t.Parallel()
	replies := []string{
		"|1\r\n+ttl\r\n%1\r\n+a\r\n*2\r\n:1\r\n:2\r\n~2\r\n(123456789012345678901234567890\r\n=7\r\ntxt:a\r\n\r\n",
		">3\r\n+message\r\n+chan\r\n+PONG\r\n%1\r\n*1\r\n:1\r\n!5\r\nERR x\r\n",
		"*3\r\n_\r\n#t\r\n,1.5\r\n",
	}
	answers := strings.Join(replies, "") + "$4\r\nlost\r\n"
	for _, chunk := range []int{1, 3, len(answers)} {
		t.Run(fmt.Sprintf("packets of %d", chunk), func(t *testing.T) {
			t.Parallel()
			p := listen(t, fake(t, func(conn net.Conn) {
				_, _ = io.ReadFull(conn, make([]byte, len(command("a", "b", "c", "d"))))
				for at := 0; at < len(answers); at += chunk {
					_, _ = io.WriteString(conn, answers[at:min(at+chunk, len(answers))])
				}
				_, _ = io.Copy(io.Discard, conn)
			}))
			p.Decide(when(DropReply, "d"))
			w := open(t, p.Addr())
			w.send(t, "a", "b", "c", "d")
			w.expect(t, strings.Join(replies, ""))
			w.expectReset(t)
			assert.EqualValues(t, 1, p.Dropped())
		})
	}
}

func TestSubscriptionsAreRelayedUnmatched(t *testing.T) {
	t.Parallel()
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprintf("RESP%d", protocol), func(t *testing.T) {
			t.Parallel()
			p := listen(t, target(t))
			c := client(t, p.Addr(), protocol)
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			channel := newKey()
			sub := c.Subscribe(ctx, channel, channel+":2")
			defer sub.Close()
			for range 2 {
				_, err := sub.Receive(ctx)
				require.NoError(t, err)
			}
			for i := range 3 {
				require.NoError(t, c.Publish(ctx, channel, i).Err())
				m, err := sub.ReceiveMessage(ctx)
				require.NoError(t, err)
				assert.Equal(t, fmt.Sprint(i), m.Payload)
			}
		})
	}
}

func TestRepliesSwitchedOffAreNotWaitedFor(t *testing.T) {
	t.Parallel()
	p := listen(t, target(t))
	w := open(t, p.Addr())
	w.send(t, "ECHO 1", "CLIENT REPLY OFF", "ECHO 2", "CLIENT REPLY ON", "ECHO 3")
	w.expect(t, "$1\r\n1\r\n+OK\r\n$1\r\n3\r\n")
}

func TestWhatIsNoCommandResetsTheClient(t *testing.T) {
	t.Parallel()
	p := listen(t, target(t))
	for _, junk := range []string{"PING\r\n", "*1\r\njunk\r\n"} {
		w := open(t, p.Addr())
		_, err := io.WriteString(w, junk)
		require.NoError(t, err)
		w.expectReset(t)
	}
}

func TestTheServersEndReachesTheClient(t *testing.T) {
	t.Parallel()
	p := listen(t, target(t))
	w := open(t, p.Addr())
	w.send(t, "QUIT")
	got, err := io.ReadAll(w.r)
	require.NoError(t, err, "an orderly end, no reset")
	assert.Equal(t, "+OK\r\n", string(got))
	eventually(t, func() bool { return p.Connections() == 0 }, "the connection is forgotten")
}

func TestTheClientsEndReachesTheServer(t *testing.T) {
	t.Parallel()
	ended := make(chan error, 1)
	p := listen(t, fake(t, func(conn net.Conn) {
		_, err := io.Copy(io.Discard, conn)
		ended <- err
	}))
	w := open(t, p.Addr())
	w.send(t, "PING")
	require.NoError(t, w.Close())
	select {
	case err := <-ended:
		assert.NoError(t, err)
	case <-time.After(patience):
		t.Fatal("the server's connection stays open")
	}
	eventually(t, func() bool { return p.Connections() == 0 }, "the connection is forgotten")
}

func BenchmarkRelay(b *testing.B) {
	server := target(b)
	p, err := Listen(server)
	require.NoError(b, err)
	defer p.Close()
	p.Decide(func([]string) Action { return Pass })
	for name, addr := range map[string]string{"direct": server, "proxy": p.Addr()} {
		b.Run(name, func(b *testing.B) {
			c := redis.NewClient(&redis.Options{Addr: addr})
			defer c.Close()
			ctx := context.Background()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if err := c.Set(ctx, "bench:k", "v", 0).Err(); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}
