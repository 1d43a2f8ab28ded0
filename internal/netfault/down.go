package netfault

import (
	"errors"
	"io"
)

// down relays replies until the server closes, or the link is killed.
func (l *link) down() {
	var m matcher
	buf := make([]byte, 2*intakeBytes)
	for {
		n, err := l.server.Read(buf)
		if n > 0 && !m.over && !l.swallowing() {
			l.reply(&m, buf[:n])
		}
		if err == nil {
			continue
		}
		if l.swallowing() {
			<-l.ctx.Done() // the client is not told that the server has gone
			return
		}
		l.endClient(!errors.Is(err, io.EOF))
		return
	}
}

// A matcher holds where in the server's stream the way down is.
type matcher struct {
	scan    scanner
	raw     bool // relayed without a look from now on
	swallow bool // inside of a reply that is swallowed
	over    bool // the client has gone: everything is discarded
}

// reply relays one piece of the server's stream. What is swallowed is always the rest of it, since the client is reset
// behind it.
func (l *link) reply(m *matcher, b []byte) {
	l.relaying.Lock()
	defer l.relaying.Unlock()
	relay := len(b) // b is relayed up to here
	if m.swallow {
		relay = 0
	}
	var end expected
	for pos := 0; pos < len(b) && !m.raw && end == nothing; {
		if m.scan.fresh() && b[pos] != '>' && !m.swallow {
			switch l.head() {
			case unmatched:
				m.raw = true
				continue
			case swallowed:
				m.swallow, relay = true, pos
			}
		}
		n, done, err := m.scan.next(b[pos:])
		pos += n
		switch {
		case err != nil:
			l.kill()
			m.over = true
			return
		case !done || m.scan.wasPush():
			continue
		}
		was, next := l.answered()
		if was == swallowed {
			end = swallowed
		} else if next == theEnd {
			end, relay = theEnd, pos
		}
	}
	if err := l.send(l.client, b[:relay]); err != nil {
		l.endClient(true)
		m.over = true
		return
	}
	if end != nothing {
		l.drop()
		m.over = true
	}
}
