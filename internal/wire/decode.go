package wire

import (
	"bytes"
	"encoding/binary"
	"math"
	"time"
)

// Decode returns the envelope that b is the encoding of. b has to be one whole record, to the byte.
//
// The payload aliases b: it stays valid, and may be kept or changed, exactly as long as b may. Appending to it does not
// write into b. An empty payload is nil, and so are absent headers. Decode allocates the kind's string and, if there are
// headers, a map and one string for all names and values.
//
// The error is a [*NewerVersionError] for a newer version and matches [ErrUndecodable] for anything else that is not an
// envelope; the returned envelope is then empty. Decode never panics, whatever b holds.
func Decode(b []byte) (Envelope, error) {
	if err := checkVersion(b); err != nil {
		return Envelope{}, err
	}
	c := cursor{b: b, at: 1}
	block := c.length("headers")
	micros := c.take(timeSize, "enqueue time")
	kind := c.kind()
	headers := c.take(block, "headers")
	payload := c.take(c.length("payload"), "payload")
	if c.err != nil {
		return Envelope{}, c.err
	}
	if c.at != len(b) {
		return Envelope{}, undecodable("ends at byte %d of %d", c.at, len(b))
	}
	if len(kind) == 0 && string(b) != stub {
		return Envelope{}, undecodable("no kind")
	}
	e := Envelope{EnqueuedAt: time.UnixMicro(int64(binary.BigEndian.Uint64(micros))).UTC()}
	if len(headers) > 0 {
		var err error
		if e.Headers, err = decodeHeaders(headers); err != nil {
			return Envelope{}, err
		}
	}
	e.Kind = string(kind)
	if len(payload) > 0 {
		e.Payload = payload
	}
	return e, nil
}

// HeadSize is how many bytes of a record hold everything before its payload, whatever is in it.
const HeadSize = 1 + binary.MaxVarintLen64 + timeSize + 1 + maxKind + 2*MaxHeaders + binary.MaxVarintLen64

// DecodeHead returns what the first HeadSize bytes of a record tell, if it is longer than that: all but the payload, and
// how long that is. The rest of the record is not looked at.
func DecodeHead(b []byte) (e Envelope, payloadSize int, err error) {
	if err := checkVersion(b); err != nil {
		return Envelope{}, 0, err
	}
	c := cursor{b: b, at: 1}
	block := c.length("headers")
	micros := c.take(timeSize, "enqueue time")
	kind := c.kind()
	headers := c.take(block, "headers")
	if c.err != nil {
		return Envelope{}, 0, c.err
	}
	size, n := binary.Uvarint(b[c.at:])
	if n <= 0 || size > math.MaxInt32 || len(kind) == 0 {
		return Envelope{}, 0, undecodable("no kind, or a bad length of the payload")
	}
	e = Envelope{Kind: string(kind), EnqueuedAt: time.UnixMicro(int64(binary.BigEndian.Uint64(micros))).UTC()}
	if len(headers) > 0 {
		e.Headers, err = decodeHeaders(headers)
	}
	return e, int(size), err
}

func checkVersion(b []byte) error {
	switch {
	case len(b) == 0:
		return undecodable("empty")
	case b[0] == Version:
		return nil
	case b[0] > Version && b[0] <= lastVersion:
		return &NewerVersionError{Version: int(b[0])}
	}
	return undecodable("first byte is 0x%02x", b[0])
}

// decodeHeaders reads a headers block of at least one byte. It goes over the block twice: first to check and count, so
// that nothing is allocated for a block that is refused, then to fill the map.
func decodeHeaders(block []byte) (map[string]string, error) {
	c := cursor{b: block}
	var last []byte
	n, size := 0, 0
	for c.at < len(block) {
		name := c.take(c.length("header name"), "header name")
		value := c.take(c.length("header value"), "header value")
		if c.err != nil {
			return nil, c.err
		}
		if n > 0 && bytes.Compare(last, name) >= 0 {
			return nil, undecodable("header %d is out of order or named twice", n+1)
		}
		if size += len(name) + len(value); size > MaxHeaders {
			return nil, undecodable("headers over %d bytes", MaxHeaders)
		}
		last = name
		n++
	}
	all := string(block)
	headers := make(map[string]string, n)
	c = cursor{b: block}
	for c.at < len(block) {
		name := c.span(all, c.length(""))
		headers[name] = c.span(all, c.length(""))
	}
	return headers, nil
}

// A cursor walks over a record, or over a part of it. After the first error it stays where it is, and what it returns
// means nothing.
type cursor struct {
	b   []byte
	at  int
	err error
}

// length reads a uvarint that is a length of something still to come.
func (c *cursor) length(what string) int {
	if c.err != nil {
		return 0
	}
	v, n := binary.Uvarint(c.b[c.at:])
	switch {
	case n == 0:
		c.err = undecodable("cut short in the length of the %s", what)
	case n < 0, n > 1 && c.b[c.at+n-1] == 0:
		c.err = undecodable("bad length of the %s at byte %d", what, c.at)
	case v > uint64(len(c.b)-c.at-n):
		c.err = undecodable("cut short: %s of %d bytes, %d bytes left", what, v, len(c.b)-c.at-n)
	default:
		c.at += n
		return int(v)
	}
	return 0
}

// take reads n bytes, n ≥ 0, and returns them with no capacity beyond.
func (c *cursor) take(n int, what string) []byte {
	if c.err != nil {
		return nil
	}
	if n > len(c.b)-c.at {
		c.err = undecodable("cut short in the %s", what)
		return nil
	}
	from := c.at
	c.at += n
	return c.b[from:c.at:c.at]
}

// kind reads the kind and its length.
func (c *cursor) kind() []byte {
	length := c.take(1, "length of the kind")
	if c.err != nil {
		return nil
	}
	if length[0] > maxKind {
		c.err = undecodable("kind of %d bytes", length[0])
		return nil
	}
	kind := c.take(int(length[0]), "kind")
	if at := firstForeign(kind); at >= 0 {
		c.err = undecodable("kind holds 0x%02x", kind[at])
	}
	return kind
}

// span reads n bytes out of all, which holds the same as the cursor's bytes. Only for what was checked before.
func (c *cursor) span(all string, n int) string {
	from := c.at
	c.at += n
	return all[from:c.at]
}
