package netfault

import (
	"errors"
	"net"
	"strings"
)

const (
	// intakeBytes is the space for commands at first; it grows with the largest command.
	intakeBytes = 32 << 10

	// intakeKeep is the greatest space that is kept when it is empty.
	intakeKeep = 1 << 20
)

// errEnough ends the way up without an error on either side.
var errEnough = errors.New("nothing more is forwarded")

// An intake holds what was read from a client and not forwarded yet.
type intake struct {
	buf   []byte
	sent  int // forwarded up to here
	begin int // the present command begins here
	pos   int // scanned up to here
	scan  scanner
	raw   bool // relayed without a look from now on
}

// up relays commands until the client has gone, everything read from it has been forwarded, or the link is killed.
func (l *link) up() {
	in := &intake{buf: make([]byte, 0, intakeBytes)}
	for {
		if err := l.forward(in); err != nil {
			if !errors.Is(err, errEnough) {
				l.endClient(true)
			}
			break
		}
		in.makeRoom()
		n, err := l.client.Read(in.buf[len(in.buf):cap(in.buf)])
		if n > 0 {
			if l.swallowing() {
				in.buf, in.sent, in.begin, in.pos = in.buf[:0], 0, 0, 0
			} else {
				in.buf = in.buf[:len(in.buf)+n]
			}
			continue
		}
		if err != nil {
			break
		}
	}
	if l.swallowing() {
		<-l.ctx.Done() // the server is not told that the client has gone
		return
	}
	if server, ok := l.server.(*net.TCPConn); ok {
		_ = server.CloseWrite()
	}
}

// forward looks at what was read, command by command, and forwards what is complete and may go.
func (l *link) forward(in *intake) error {
	for !in.raw && in.pos < len(in.buf) {
		if in.scan.fresh() && in.buf[in.pos] != '*' {
			return errors.New("netfault: a command that is no array")
		}
		n, done, err := in.scan.next(in.buf[in.pos:])
		in.pos += n
		if err != nil {
			return err
		}
		if !done {
			break
		}
		if err := l.command(in); err != nil {
			return err
		}
		in.begin = in.pos
	}
	if in.raw {
		in.begin, in.pos = len(in.buf), len(in.buf)
	}
	return l.flush(in)
}

// command decides about the command between begin and pos.
func (l *link) command(in *intake) error {
	cmd := in.buf[in.begin:in.pos]
	name := arguments(cmd, 3)
	if len(name) == 0 {
		return nil // an empty array, which a server does not answer
	}
	l.p.commands.Add(1)
	action := l.ask(cmd)
	switch reply, isAnswer := strings.CutPrefix(string(action), answer); {
	case isAnswer:
		return l.answer(in, reply)
	case action == DropRequest || action == HangUp:
		return l.hangUp(in, action == HangUp)
	case action == Hold:
		if err := l.flush(in); err != nil {
			return err
		}
		if err := l.hold(); err != nil {
			return err
		}
		l.expect(turn{expected: relayed})
	case action == DropReply:
		l.expect(turn{expected: swallowed})
	default:
		if in.raw = unmatchable(name); in.raw {
			l.expect(turn{expected: unmatched})
		} else {
			l.expect(turn{expected: relayed})
		}
	}
	return nil
}

// hangUp ends the client's side when the replies of the commands before this one have been relayed.
func (l *link) hangUp(in *intake, soft bool) error {
	if err := l.flush(in); err != nil {
		return err
	}
	if l.expect(turn{expected: theEnd, soft: soft}) {
		l.relaying.Lock() // the last reply may be on its way still
		l.drop(!soft)
		l.relaying.Unlock()
	}
	select {
	case <-l.gone: // by us, or by down when the replies before this have been relayed
	case <-l.ctx.Done():
	}
	return errEnough
}

// answer gives the client a reply of ours in its turn, and leaves the command out of what is forwarded.
func (l *link) answer(in *intake, reply string) error {
	if err := l.flush(in); err != nil {
		return err
	}
	in.sent = in.pos
	if !l.expect(turn{expected: made, made: reply}) {
		return nil // down sends it behind the replies before it
	}
	l.relaying.Lock() // the last reply may be on its way still
	defer l.relaying.Unlock()
	err := l.send(l.client, []byte(reply))
	l.answered()
	return err
}

// ask asks the decider, if there is one.
func (l *link) ask(cmd []byte) Action {
	if l.p.decide.Load() == nil {
		return Pass
	}
	args := arguments(cmd, maxArgs)
	l.p.asking.Lock()
	defer l.p.asking.Unlock()
	if f := l.p.decide.Load(); f != nil {
		return (*f)(args)
	}
	return Pass
}

// hold waits until held commands are released.
func (l *link) hold() error {
	l.p.mu.Lock()
	if l.ctx.Err() != nil {
		l.p.mu.Unlock()
		return l.ctx.Err()
	}
	l.p.holding[l] = struct{}{}
	release := l.p.release
	l.p.mu.Unlock()
	select {
	case <-release:
		return nil
	case <-l.ctx.Done():
		return l.ctx.Err()
	}
}

// flush forwards the complete commands.
func (l *link) flush(in *intake) error {
	b := in.buf[in.sent:in.begin]
	in.sent = in.begin
	return l.send(l.server, b)
}

// makeRoom moves what is left to the front and sees that there is space to read.
func (in *intake) makeRoom() {
	if in.sent == len(in.buf) && cap(in.buf) > intakeKeep {
		in.buf = make([]byte, 0, intakeBytes)
	} else if in.sent > 0 {
		in.buf = in.buf[:copy(in.buf, in.buf[in.sent:])]
	}
	in.begin -= in.sent
	in.pos -= in.sent
	in.sent = 0
	if cap(in.buf)-len(in.buf) < intakeBytes/2 {
		in.buf = append(make([]byte, 0, 2*cap(in.buf)), in.buf...)
	}
}

// unmatchable says whether commands and replies can no longer be matched after this command.
func unmatchable(name []string) bool {
	switch strings.ToLower(name[0]) {
	case "subscribe", "psubscribe", "ssubscribe", "monitor", "sync", "psync":
		return true
	case "client":
		return len(name) > 2 && strings.EqualFold(name[1], "reply") && !strings.EqualFold(name[2], "on")
	}
	return false
}
