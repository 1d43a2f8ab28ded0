// Package netfault is a TCP proxy between a Redis client and its server that does what networks do to people: it cuts,
// delays, swallows and chops. It knows the protocol, so that it can also lose exactly one request, or exactly the reply
// of one command that has run.
//
// Commands and replies are matched in order on each connection, with RESP2 and RESP3; push frames are no replies. A
// connection that subscribes, monitors, replicates or switches replies off is relayed unmatched from then on: Decide is
// asked for that command, and for none behind it. Commands must come as arrays of bulk strings, as every client
// library sends them; a connection that sends anything else is reset.
package netfault

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// An Action is what happens to one command: one of these, or what Answer returns.
type Action string

const (
	// Pass relays the command and its reply.
	Pass Action = "pass"

	// DropReply forwards the command and waits for the server's whole reply, so that the command has surely run. The
	// replies of the commands before it are relayed; then the client's connection is reset instead of relaying this
	// one. Commands that the client sent behind it in the meantime are forwarded too, and their replies are lost.
	DropReply Action = "drop reply"

	// DropRequest resets the client's connection without forwarding the command or anything behind it, after the
	// replies of the commands before it have been relayed.
	DropRequest Action = "drop request"

	// HangUp is DropRequest, but closes the client's connection in order, as a server that ends it: the client reads
	// the end of the stream where it expected a reply. A client that has sent more behind the command may get a reset.
	HangUp Action = "hang up"

	// Hold keeps the command, and everything behind it on its connection, until ReleaseHeld. The client's side stays
	// open and silent. When released it is forwarded even if the client has gone away or was cut off in between.
	Hold Action = "hold"
)

// answer begins an Action that Answer made.
const answer = "answer "

// Answer returns an action that does not forward the command and gives the client this instead of a reply, behind the
// replies of the commands before it: the text of a reply as the protocol writes it, such as "-BUSY try later\r\n" or
// ":1\r\n". It is sent as it is, so that it can also be something that no server says.
func Answer(reply string) Action { return Action(answer + reply) }

// String returns the action's name.
func (a Action) String() string { return string(a) }

// dialTimeout bounds the connection to the server.
const dialTimeout = 5 * time.Second

// A Proxy accepts connections and relays each to the target on a connection of its own. All faults are off at first.
// They hold for present and future connections alike. Its methods may be called from several goroutines at once.
type Proxy struct {
	target   string
	listener net.Listener
	serving  sync.WaitGroup

	delay    atomic.Int64 // nanoseconds
	chunk    atomic.Int64 // bytes; 0 is off
	commands atomic.Int64
	dropped  atomic.Int64

	asking sync.Mutex // held while the decider runs: one question at a time
	decide atomic.Pointer[func([]string) Action]

	hole struct {
		sync.RWMutex
		on bool
	}

	mu      sync.Mutex
	closed  bool
	cut     bool
	links   map[*link]struct{}
	holding map[*link]struct{}
	release chan struct{} // closed by ReleaseHeld, and made anew
}

// Listen starts a proxy on a free port of 127.0.0.1 for a target in the form host:port. The target is dialled anew for
// every connection; it need not be up yet. Close ends the proxy.
func Listen(target string) (*Proxy, error) {
	if _, _, err := net.SplitHostPort(target); err != nil {
		return nil, fmt.Errorf("netfault: target: want host:port: %w", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("netfault: %w", err)
	}
	p := &Proxy{
		target:   target,
		listener: listener,
		links:    map[*link]struct{}{},
		holding:  map[*link]struct{}{},
		release:  make(chan struct{}),
	}
	p.serving.Go(p.accept)
	return p, nil
}

// Addr returns the address for clients in the form 127.0.0.1:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Close resets all connections, also those with held commands, and waits until every goroutine of the proxy has ended.
// Closing again does nothing.
func (p *Proxy) Close() error {
	p.mu.Lock()
	again := p.closed
	p.closed = true
	for l := range p.links {
		l.kill()
	}
	p.mu.Unlock()
	var err error
	if !again {
		err = p.listener.Close()
	}
	p.serving.Wait()
	return err
}

// Cut resets all connections on both sides, and new ones as soon as they are accepted, until Restore. Of a connection
// with a held command only the client's side is reset.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = true
	for l := range p.links {
		if _, held := p.holding[l]; held {
			l.endClient(true)
		} else {
			l.kill()
		}
	}
}

// Restore ends what Cut began. Connections that were reset stay so.
func (p *Proxy) Restore() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = false
}

// BlackHole switches a black hole on or off. While it is on, whatever comes from either side is swallowed and neither
// side is told anything, not even that the other has gone; new connections are accepted and swallowed too. When it is
// switched off, connections that lost something in it are reset, since their streams cannot be continued; the others
// go on, and those that Silence has silenced stay silent.
func (p *Proxy) BlackHole(on bool) {
	p.hole.Lock()
	p.hole.on = on
	p.hole.Unlock()
	if on {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		if l.lost.Load() && !l.silent.Load() {
			l.kill()
		}
	}
}

// Silence makes a black hole of each connection that there is at this moment, until it or the proxy is closed: BlackHole
// and Restore do not bring it back. Connections made afterwards are relayed. It returns how many it has silenced: those
// that still have a client, and were not silent before.
func (p *Proxy) Silence() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for l := range p.links {
		if l.hasClient() && !l.silent.Swap(true) {
			n++
		}
	}
	return n
}

// Delay holds back every piece of data that is relayed, in each direction, by d: what was read at once counts as one
// piece, also if Chunk then splits it. A round trip takes 2d longer. 0 is off.
func (p *Proxy) Delay(d time.Duration) { p.delay.Store(int64(d)) }

// Chunk relays all data in packets of at most n bytes. 0 is off.
func (p *Proxy) Chunk(n int) { p.chunk.Store(int64(n)) }

// Decide has f asked once for every command before it is forwarded; nil ends that. f is given the command's name as the
// client wrote it and its arguments: at most 64 strings in all, each cut to 256 bytes. It is asked for the commands of
// a connection's start (HELLO, CLIENT ...) too.
//
// Questions are asked one at a time over all connections, so f needs no lock of its own, and must not wait for
// anything that needs this proxy. What is none of the actions counts as Pass.
func (p *Proxy) Decide(f func(cmd []string) Action) {
	if f == nil {
		p.decide.Store(nil)
		return
	}
	p.decide.Store(&f)
}

// ReleaseHeld lets all commands that are held now go on to the server, and returns how many connections that were. It
// does not wait until they have arrived. Commands for which Decide answers Hold afterwards are held anew, also those
// that waited behind one of these.
func (p *Proxy) ReleaseHeld() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.holding)
	clear(p.holding)
	close(p.release)
	p.release = make(chan struct{})
	return n
}

// Held returns how many connections have a held command at this moment.
func (p *Proxy) Held() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.holding)
}

// Connections returns how many connections there are at this moment, also those of which one side has gone.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

// Commands returns how many commands have been read from clients in all: dropped and held ones count, what a black hole
// swallowed does not.
func (p *Proxy) Commands() int64 { return p.commands.Load() }

// Dropped returns how many requests and replies have been dropped in all because Decide said so; Answer drops nothing. It has counted a drop
// before the client can notice it.
func (p *Proxy) Dropped() int64 { return p.dropped.Load() }

// accept takes connections until the listener is closed.
func (p *Proxy) accept() {
	for {
		conn, err := p.listener.Accept()
		p.mu.Lock()
		switch {
		case p.closed:
			if err == nil {
				reset(conn)
			}
			p.mu.Unlock()
			return
		case err != nil: // out of file descriptors, most likely
		case p.cut:
			reset(conn)
		default:
			ctx, cancel := context.WithCancel(context.Background())
			l := &link{p: p, client: conn, ctx: ctx, cancel: cancel, gone: make(chan struct{})}
			p.links[l] = struct{}{}
			p.serving.Go(l.serve)
		}
		p.mu.Unlock()
		if err != nil {
			time.Sleep(time.Millisecond)
		}
	}
}

// forget drops a connection that has ended.
func (p *Proxy) forget(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
	delete(p.holding, l)
}
