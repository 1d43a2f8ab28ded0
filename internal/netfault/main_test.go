package netfault

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/leaseq/leaseq/internal/redisproc"
)

// patience bounds every wait of these tests.
const patience = 10 * time.Second

var shared struct {
	once   sync.Once
	server *redisproc.Server
	err    error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.server != nil {
		if err := shared.server.Stop(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// target returns the address of the server that these tests share.
func target(t testing.TB) string {
	t.Helper()
	shared.once.Do(func() {
		if _, shared.err = redisproc.Find(); shared.err == nil {
			shared.server, shared.err = redisproc.Start(context.Background(), nil)
		}
	})
	if shared.server == nil {
		t.Skip(shared.err)
	}
	return shared.server.Addr()
}

func listen(t *testing.T, target string) *Proxy {
	t.Helper()
	p, err := Listen(target)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, p.Close()) })
	return p
}

// direct returns a client of the server without a proxy.
func direct(t *testing.T) *redis.Client { return client(t, target(t), 2) }

func client(t *testing.T, addr string, protocol int) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: addr, Protocol: protocol, MaxRetries: -1})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

var keys atomic.Int64

// newKey returns a key that no other test uses, also when the tests run several times in one process.
func newKey() string { return fmt.Sprintf("netfault:%d", keys.Add(1)) }

// A wire is a raw connection on which a test writes and reads what it likes.
type wire struct {
	net.Conn
	r *bufio.Reader
}

func open(t *testing.T, addr string) *wire {
	t.Helper()
	conn, err := net.DialTimeout("tcp", addr, patience)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	return &wire{Conn: conn, r: bufio.NewReader(conn)}
}

// command encodes commands; words are separated by blanks.
func command(lines ...string) []byte {
	var b bytes.Buffer
	for _, line := range lines {
		words := strings.Fields(line)
		fmt.Fprintf(&b, "*%d\r\n", len(words))
		for _, word := range words {
			fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(word), word)
		}
	}
	return b.Bytes()
}

func (w *wire) send(t *testing.T, lines ...string) {
	t.Helper()
	_, err := w.Write(command(lines...))
	require.NoError(t, err)
}

// expect reads exactly these bytes.
func (w *wire) expect(t *testing.T, want string) {
	t.Helper()
	got := make([]byte, len(want))
	n, err := io.ReadFull(w.r, got)
	require.NoError(t, err, "after %q", got[:n])
	require.Equal(t, want, string(got))
}

// expectReset reads a reset and nothing before it.
func (w *wire) expectReset(t *testing.T) {
	t.Helper()
	got, err := io.ReadAll(w.r)
	assert.Empty(t, got)
	require.True(t, isReset(err), "want a reset, got %v", err)
}

// dialReset shows that a new connection is reset at once, be it during the dial.
func dialReset(t *testing.T, addr string) {
	t.Helper()
	conn, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		require.True(t, isReset(err), "want a reset, got %v", err)
		return
	}
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	(&wire{Conn: conn, r: bufio.NewReader(conn)}).expectReset(t)
}

func isReset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || err != nil && strings.Contains(err.Error(), "forcibly closed")
}

// expectSilence shows that nothing arrives for a while, and no end either.
func (w *wire) expectSilence(t *testing.T) {
	t.Helper()
	require.NoError(t, w.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	b, err := w.r.ReadByte()
	require.ErrorIs(t, err, os.ErrDeadlineExceeded, "got %q", b)
	require.NoError(t, w.SetReadDeadline(time.Now().Add(patience)))
}

// eventually waits until a condition holds.
func eventually(t *testing.T, condition func() bool, what string) {
	t.Helper()
	require.Eventually(t, condition, patience, time.Millisecond, what)
}

// when decides for commands that begin with these words, in any case, and passes the others.
func when(action Action, words string) func([]string) Action {
	return func(cmd []string) Action {
		if line := strings.ToLower(strings.Join(cmd, " ")) + " "; strings.HasPrefix(line, words+" ") {
			return action
		}
		return Pass
	}
}
