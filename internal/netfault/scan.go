package netfault

import (
	"bytes"
	"fmt"
)

// A scanner finds where values of the Redis protocol end, in a stream that comes in pieces of any size. It knows RESP2
// and RESP3 but for streamed strings and aggregates, which no server sends. It copies nothing but the heads of lines.
type scanner struct {
	head  []byte  // the first bytes of a line that is not complete yet
	skip  int64   // bytes left of a bulk string and its line end
	open  []level // the aggregates around the present place, outermost first
	begun bool    // inside of a top-level value
	push  bool    // that value is a push frame
}

// A level is an aggregate that has begun.
type level struct {
	left      int64
	attribute bool // it stands before a value and is none itself
}

// headBytes is enough for the type and the count of every line that has one.
const headBytes = 32

// next reads from b up to the end of the present top-level value. It returns how many bytes belong to that value, and
// whether it is complete; if not, all of b belongs to it and the next call goes on.
func (s *scanner) next(b []byte) (n int, done bool, err error) {
	for n < len(b) {
		if s.skip > 0 {
			k := min(s.skip, int64(len(b)-n))
			n += int(k)
			if s.skip -= k; s.skip > 0 {
				return n, false, nil
			}
			if s.ended() {
				return n, true, nil
			}
			continue
		}
		end := bytes.IndexByte(b[n:], '\n')
		if end < 0 {
			s.keep(b[n:])
			return len(b), false, nil
		}
		s.keep(b[n : n+end+1])
		n += end + 1
		done, err = s.element(s.head)
		s.head = s.head[:0]
		if done || err != nil {
			return n, done, err
		}
	}
	return n, false, nil
}

// fresh says whether the next byte begins a top-level value.
func (s *scanner) fresh() bool { return !s.begun }

func (s *scanner) keep(b []byte) {
	s.begun = true
	if room := headBytes - len(s.head); room > 0 {
		s.head = append(s.head, b[:min(room, len(b))]...)
	}
}

// element takes the line that begins an element.
func (s *scanner) element(head []byte) (done bool, err error) {
	kind := head[0]
	switch kind {
	case '+', '-', ':', '_', '#', ',', '(':
		return s.ended(), nil
	case '$', '!', '=':
		n, err := count(head)
		if err != nil {
			return false, err
		}
		if n < 0 {
			return s.ended(), nil
		}
		s.skip = n + 2
		return false, nil
	case '*', '~', '>', '%', '|':
	default:
		return false, fmt.Errorf("netfault: %q begins no value of the protocol", head)
	}
	n, err := count(head)
	if err != nil {
		return false, err
	}
	if kind == '%' || kind == '|' {
		n *= 2
	}
	if kind == '>' && len(s.open) == 0 {
		s.push = true
	}
	if n > 0 {
		s.open = append(s.open, level{left: n, attribute: kind == '|'})
		return false, nil
	}
	if kind == '|' {
		return false, nil // an empty attribute: its value is still to come
	}
	return s.ended(), nil
}

// ended notes that an element is complete, and with it perhaps those around it. It says whether the top-level value is.
func (s *scanner) ended() bool {
	for len(s.open) > 0 {
		top := &s.open[len(s.open)-1]
		if top.left--; top.left > 0 {
			return false
		}
		attribute := top.attribute
		s.open = s.open[:len(s.open)-1]
		if attribute {
			return false
		}
	}
	s.begun = false
	return true
}

// wasPush says whether the value that has just ended was a push frame, and forgets it.
func (s *scanner) wasPush() bool {
	push := s.push
	s.push = false
	return push
}

// count reads the number behind the type of a line such as "$12\r\n".
func count(head []byte) (int64, error) {
	digits := bytes.TrimRight(head[1:], "\r\n")
	negative := len(digits) > 0 && digits[0] == '-'
	if negative {
		digits = digits[1:]
	}
	if len(digits) == 0 || len(digits) > 18 {
		return 0, fmt.Errorf("netfault: %q holds no count", head)
	}
	var n int64
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, fmt.Errorf("netfault: %q holds no count", head)
		}
		n = n*10 + int64(c-'0')
	}
	if negative {
		n = -n
	}
	return n, nil
}

const (
	// maxArgs and maxArgBytes bound what Decide is shown of a command.
	maxArgs     = 64
	maxArgBytes = 256
)

// arguments returns the first arguments of a complete command, at most most of them, each cut to maxArgBytes. A command
// that is no array of bulk strings has none.
func arguments(cmd []byte, most int) []string {
	n, rest, ok := number(cmd, '*')
	if !ok || n <= 0 {
		return nil
	}
	args := make([]string, 0, min(n, most))
	for len(args) < cap(args) {
		var size int
		if size, rest, ok = number(rest, '$'); !ok || size < 0 || len(rest) < size+2 {
			return args
		}
		args = append(args, string(rest[:min(size, maxArgBytes)]))
		rest = rest[size+2:]
	}
	return args
}

// number reads a line of a type and a count, and returns what follows it.
func number(b []byte, kind byte) (n int, rest []byte, ok bool) {
	end := bytes.IndexByte(b, '\n')
	if end < 1 || b[0] != kind {
		return 0, nil, false
	}
	wide, err := count(b[:end+1])
	return int(wide), b[end+1:], err == nil
}
