package wire

import (
	"fmt"
	"time"
)

// Version is the version that [Append] writes, the first byte of a record.
const Version = 1

// MaxHeaders is the greatest size of all headers of one envelope, names and values together, in bytes. The lengths
// that the encoding puts before them do not count.
const MaxHeaders = 4096

const (
	maxKind     = 128 // bytes, so that the kind's length always fits one byte
	lastVersion = 15  // the highest first byte that means a newer version
	timeSize    = 8   // bytes of the enqueue time
	fixedSize   = 1 + timeSize + 1
)

// stub is what [Stub] returns: version 1, no headers, time 0, no kind, no payload.
const stub = "\x01" + "\x00" + "\x00\x00\x00\x00\x00\x00\x00\x00" + "\x00" + "\x00"

// An Envelope is the unchanging part of a job.
type Envelope struct {
	// Kind names the sort of job, and so its handler. See [ValidateKind].
	Kind string
	// Payload is the job's data, never looked into. Nil and empty are the same. Its size is not limited here.
	Payload []byte
	// Headers go with the payload, in no order. Nil and empty are the same. Names and values are any bytes, an empty
	// name included; together they are at most [MaxHeaders] bytes.
	Headers map[string]string
	// EnqueuedAt is when the job was enqueued by the producer's clock. It is kept in whole microseconds, what is below
	// is cut off, and it is decoded in UTC. The zero time is kept as such.
	EnqueuedAt time.Time
}

// Stub returns the envelope that stands in where a job has lost its record: no kind, no payload, no headers, and
// 1970-01-01 as its enqueue time. [Decode] accepts it; no other envelope is without a kind. The caller may change the
// returned bytes.
func Stub() []byte { return []byte(stub) }

// inKind tells which bytes a kind may hold.
var inKind = func() (set [256]bool) {
	for _, c := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:/-") {
		set[c] = true
	}
	return set
}()

// ValidateKind reports whether kind can be the kind of a job: 1 to 128 of the characters A–Z a–z 0–9 . _ : / -.
// The error says what is wrong and what would be right.
func ValidateKind(kind string) error {
	if kind == "" {
		return fmt.Errorf("kind is empty: want 1 to %d of A-Z a-z 0-9 . _ : / -", maxKind)
	}
	if len(kind) > maxKind {
		return fmt.Errorf("kind has %d bytes: want at most %d", len(kind), maxKind)
	}
	if at := firstForeign(kind); at >= 0 {
		return fmt.Errorf("kind %q holds %q at byte %d: only A-Z a-z 0-9 . _ : / - are allowed", kind, kind[at], at)
	}
	return nil
}

// firstForeign returns where the first byte is that no kind may hold, or -1.
func firstForeign[T string | []byte](kind T) int {
	for i := 0; i < len(kind); i++ {
		if !inKind[kind[i]] {
			return i
		}
	}
	return -1
}
