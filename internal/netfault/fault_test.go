package netfault

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func pings(t *testing.T, w *wire) {
	t.Helper()
	w.send(t, "PING")
	w.expect(t, "+PONG\r\n")
}

func TestCutResetsConnectionsUntilRestored(t *testing.T) {
	t.Parallel()
	p := listen(t, target(t))
	before := open(t, p.Addr())
	pings(t, before)
	p.Cut()
	before.expectReset(t)
	for range 3 {
		dialReset(t, p.Addr())
	}
	p.Restore()
	pings(t, open(t, p.Addr()))
}

func TestCutEndsTheServersSideToo(t *testing.T) {
	t.Parallel()
	ended := make(chan error, 1)
	p := listen(t, fake(t, func(conn net.Conn) {
		_, err := io.Copy(io.Discard, conn)
		ended <- err
	}))
	w := open(t, p.Addr())
	w.send(t, "PING")
	eventually(t, func() bool { return p.Commands() == 1 }, "the connection is up")
	p.Cut()
	select {
	case err := <-ended:
		assert.True(t, err == nil || isReset(err), "%v", err)
	case <-time.After(patience):
		t.Fatal("the server's connection stays open")
	}
}

func TestBlackHoleSwallowsBothWays(t *testing.T) {
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
	p.BlackHole(true)
	close(answer)
	w.expectSilence(t)
	eventually(t, func() bool { return p.swallowed() == 1 }, "the answer has come into the hole")
	p.BlackHole(false)
	w.expectReset(t)
	<-ended
}

func TestBlackHoleAcceptsAndSwallowsUntilSwitchedOff(t *testing.T) {
	t.Parallel()
	p := listen(t, target(t))
	idle, busy := open(t, p.Addr()), open(t, p.Addr())
	pings(t, idle)
	pings(t, busy)

	p.BlackHole(true)
	key := newKey()
	busy.send(t, "SET "+key+" 1")
	fresh := open(t, p.Addr())
	fresh.send(t, "SET "+key+" 2")
	busy.expectSilence(t)
	fresh.expectSilence(t)
	eventually(t, func() bool { return p.swallowed() == 2 }, "both have come into the hole")
	assert.EqualValues(t, 2, p.Commands(), "what was swallowed does not count")

	p.BlackHole(false)
	busy.expectReset(t)
	fresh.expectReset(t)
	pings(t, idle) // it lost nothing
	pings(t, open(t, p.Addr()))
	assert.Empty(t, value(t, key))
}

func TestBlackHoleHidesTheClientsEnd(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	p := listen(t, fake(t, func(conn net.Conn) {
		_, _ = io.ReadFull(conn, make([]byte, len(command("PING"))))
		_, _ = io.WriteString(conn, "+PONG\r\n")
		_, _ = io.Copy(io.Discard, conn)
		close(ended)
	}))
	w := open(t, p.Addr())
	pings(t, w)
	p.BlackHole(true)
	require.NoError(t, w.Close())
	select {
	case <-ended:
		t.Fatal("the server learnt that the client has gone")
	case <-time.After(50 * time.Millisecond):
	}
	p.BlackHole(false)
	<-ended
}

func TestBlackHoleHidesTheServersEnd(t *testing.T) {
	t.Parallel()
	end := make(chan struct{})
	p := listen(t, fake(t, func(conn net.Conn) {
		_, _ = io.ReadFull(conn, make([]byte, len(command("PING"))))
		_, _ = io.WriteString(conn, "+PONG\r\n")
		<-end
	}))
	w := open(t, p.Addr())
	pings(t, w)
	p.BlackHole(true)
	close(end)
	w.expectSilence(t)
	eventually(t, func() bool { return p.swallowed() == 1 }, "the end has come into the hole")
	p.BlackHole(false)
	w.expectReset(t)
}

func TestDelayHoldsBackBothWays(t *testing.T) {
	t.Parallel()
	p := listen(t, target(t))
	w := open(t, p.Addr())
	pings(t, w)
	p.Delay(40 * time.Millisecond)
	begun := time.Now()
	pings(t, w)
	assert.GreaterOrEqual(t, time.Since(begun), 80*time.Millisecond)
	p.Delay(0)
	pings(t, w)
}

func TestDelayEndsWithTheConnection(t *testing.T) {
	t.Parallel()
	p := listen(t, target(t))
	w := open(t, p.Addr())
	p.Delay(time.Hour)
	w.send(t, "PING")
	eventually(t, func() bool { return p.Commands() == 1 }, "on its way")
	begun := time.Now()
	p.Cut()
	w.expectReset(t)
	require.NoError(t, p.Close())
	assert.Less(t, time.Since(begun), patience)
}

// packets keeps the sizes of what is written to it.
type packets struct {
	net.Conn
	sizes []int
}

func (p *packets) Write(b []byte) (int, error) {
	p.sizes = append(p.sizes, len(b))
	return len(b), nil
}

func TestChunksAreSentOneByOne(t *testing.T) {
	t.Parallel()
	p := listen(t, "127.0.0.1:1")
	l := &link{p: p, ctx: t.Context()}
	for chunk, want := range map[int][]int{0: {10}, 1: {1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, 4: {4, 4, 2}, 10: {10}, 11: {10}} {
		p.Chunk(chunk)
		var to packets
		require.NoError(t, l.send(&to, make([]byte, 10)))
		assert.Equal(t, want, to.sizes, "packets of %d", chunk)
	}
}

// swallowed is how many connections have lost something to a black hole.
func (p *Proxy) swallowed() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		if l.lost.Load() {
			n++
		}
	}
	return n
}
