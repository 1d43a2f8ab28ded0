package netfault

import (
	"context"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// An expected says what becomes of the next reply of a connection.
type expected uint8

const (
	nothing   expected = iota // no command waits for a reply
	relayed                   // relay it
	swallowed                 // swallow it, then reset the client
	theEnd                    // no reply: end the client's side as soon as this is the next
	made                      // no reply: send what was made up as soon as this is the next
	unmatched                 // relay this and everything behind it without a look
)

// A turn is what becomes of one command's reply, in the order of the commands.
type turn struct {
	expected
	soft bool   // theEnd: in order, not by a reset
	made string // what is sent instead
}

// A link is a client's connection and the one to the server that belongs to it.
//
// Two goroutines serve it, up (to the server) and down (to the client). When the client goes, up has forwarded all that
// it had read and then closes the server's connection for writing; down goes on reading until the server closes, so
// that everything forwarded has been run. kill ends both at once.
type link struct {
	p      *Proxy
	client net.Conn
	ctx    context.Context // ends with kill
	cancel context.CancelFunc
	lost   atomic.Bool // something was swallowed by a black hole
	silent atomic.Bool // it is a black hole itself, for ever

	relaying sync.Mutex // held from the look at a reply until it has been relayed

	mu      sync.Mutex
	server  net.Conn // nil until it is dialled
	ended   bool     // the client's side is closed
	gone    chan struct{}
	waiting []turn // from first on
	first   int
}

// serve runs a link to its end.
func (l *link) serve() {
	defer l.p.forget(l)
	defer l.kill()
	if l.swallowing() {
		l.sink()
		return
	}
	dialer := net.Dialer{Timeout: dialTimeout}
	server, err := dialer.DialContext(l.ctx, "tcp", l.p.target)
	if err != nil {
		return // the client is reset: the server is down
	}
	l.mu.Lock()
	if l.ctx.Err() != nil {
		l.mu.Unlock()
		reset(server)
		return
	}
	l.server = server
	l.mu.Unlock()

	var down sync.WaitGroup
	down.Go(l.down)
	l.up()
	down.Wait()
}

// sink swallows what a client sends that has no server, until it goes.
func (l *link) sink() {
	buf := make([]byte, 4096)
	for {
		if _, err := l.client.Read(buf); err != nil {
			return
		}
	}
}

// swallowing says whether data of this link must be swallowed, and remembers that some was.
func (l *link) swallowing() bool {
	if l.silent.Load() {
		return true
	}
	l.p.hole.RLock()
	defer l.p.hole.RUnlock()
	if l.p.hole.on {
		l.lost.Store(true)
	}
	return l.lost.Load()
}

// kill resets both sides.
func (l *link) kill() {
	l.cancel()
	l.endClient(true)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.server != nil {
		reset(l.server)
	}
}

// endClient closes the client's side, with a reset or in order. Only the first call does anything.
func (l *link) endClient(hard bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return
	}
	l.ended = true
	if hard {
		reset(l.client)
	} else {
		_ = l.client.Close()
	}
	close(l.gone)
}

// hasClient says whether the client's side is open.
func (l *link) hasClient() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.ended
}

// expect notes what becomes of the reply of the command that is forwarded next, or is not. It says whether that is the
// next to happen.
func (l *link) expect(t turn) (next bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = append(l.waiting, t)
	return len(l.waiting) == l.first+1
}

// head returns what becomes of the reply that comes next.
func (l *link) head() turn {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.first == len(l.waiting) {
		return turn{}
	}
	return l.waiting[l.first]
}

// answered notes that a reply is complete, and returns what it was and what comes next.
func (l *link) answered() (was, next turn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.first == len(l.waiting) {
		return was, next // the server spoke unasked, as it does when it refuses a connection
	}
	was = l.waiting[l.first]
	if l.first++; l.first < len(l.waiting) {
		if l.first >= 1024 && 2*l.first >= len(l.waiting) {
			l.waiting = append(l.waiting[:0], l.waiting[l.first:]...)
			l.first = 0
		}
		return was, l.waiting[l.first]
	}
	l.waiting, l.first = l.waiting[:0], 0
	return was, next
}

// drainBound is how long a drop waits for a client that reads nothing.
const drainBound = 2 * time.Second

// drop counts a drop and ends the client's side, by a reset or in order, once everything relayed to it is on its way: a
// reset discards what is still in the send buffer.
func (l *link) drop(hard bool) {
	for begun := time.Now(); l.ctx.Err() == nil && unsentTo(l.client) > 0 && time.Since(begun) < drainBound; {
		time.Sleep(50 * time.Microsecond)
	}
	l.p.dropped.Add(1)
	l.endClient(hard)
}

// send relays one piece of data with the delay and in the packets that are set. What a black hole gets is not sent, and
// is no error.
func (l *link) send(to net.Conn, b []byte) error {
	if len(b) == 0 {
		return nil
	}
	if d := time.Duration(l.p.delay.Load()); d > 0 {
		timer := time.NewTimer(d)
		select {
		case <-timer.C:
		case <-l.ctx.Done():
			timer.Stop()
			return l.ctx.Err()
		}
	}
	for len(b) > 0 {
		if l.swallowing() {
			return nil
		}
		n := len(b)
		if chunk := int(l.p.chunk.Load()); chunk > 0 && chunk < n {
			n = chunk
		}
		if _, err := to.Write(b[:n]); err != nil {
			return err
		}
		if b = b[n:]; len(b) > 0 {
			runtime.Gosched() // the other side may read the packet before the next one joins it
		}
	}
	return nil
}

// unsentTo returns how many bytes wait in the send buffer of a connection.
func unsentTo(conn net.Conn) (n int) {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return 0
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) { n = unsent(fd) })
	return n
}

// reset closes a connection so that the other side gets a reset (RST) and no orderly end.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}
