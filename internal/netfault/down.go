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

// reply relays one piece of the server's stream, and puts in what was made up. What is swallowed is always the rest of
// it, since the client's side ends behind it.
func (l *link) reply(m *matcher, b []byte) {
	l.relaying.Lock()
	defer l.relaying.Unlock()
	from, to := 0, len(b) // what is relayed next
	if m.swallow {
		to = 0
	}
	var end turn
	for pos := 0; pos < len(b) && !m.raw && end.expected == nothing; {
		if m.scan.fresh() && b[pos] != '>' && !m.swallow {
			switch l.head().expected {
			case unmatched:
				m.raw = true
				continue
			case swallowed:
				m.swallow, to = true, pos
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
		if was.expected == swallowed {
			end = was
			break
		}
		if next.expected == made {
			if next, err = l.putIn(b[from:pos], next); err != nil {
				l.endClient(true)
				m.over = true
				return
			}
			from = pos
		}
		if next.expected == theEnd {
			end, to = next, pos
		}
	}
	if err := l.send(l.client, b[from:max(from, to)]); err != nil {
		l.endClient(true)
		m.over = true
		return
	}
	if end.expected != nothing {
		l.drop(!end.soft)
		m.over = true
	}
}

// putIn relays what comes before replies that were made up, and then those. It returns what is next after them.
func (l *link) putIn(before []byte, next turn) (turn, error) {
	if err := l.send(l.client, before); err != nil {
		return next, err
	}
	for next.expected == made {
		if err := l.send(l.client, []byte(next.made)); err != nil {
			return next, err
		}
		_, next = l.answered()
	}
	return next, nil
}
