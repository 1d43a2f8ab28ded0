package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"slices"
)

// sortedInPlace is how many header names are sorted without an allocation.
const sortedInPlace = 32

// Append appends the encoding of e to dst and returns the longer slice. Equal envelopes get equal bytes.
//
// It refuses a kind that [ValidateKind] refuses, headers over [MaxHeaders], and a time that has no 64-bit count of
// microseconds (about 292,000 years from 1970); the error names all of these that apply. On an error dst is returned as
// it was. The payload's size is for the caller to bound.
//
// It allocates only to grow dst, once, and, with more than 32 headers, a list of their names. The payload must not lie
// in the spare capacity of dst.
func Append(dst []byte, e *Envelope) ([]byte, error) {
	block, err := check(e)
	if err != nil {
		return dst, err
	}
	size := fixedSize + uvarintSize(block) + len(e.Kind) + block + uvarintSize(len(e.Payload)) + len(e.Payload)
	dst = slices.Grow(dst, size)
	dst = append(dst, Version)
	dst = binary.AppendUvarint(dst, uint64(block))
	dst = binary.BigEndian.AppendUint64(dst, uint64(e.EnqueuedAt.UnixMicro()))
	dst = append(dst, byte(len(e.Kind)))
	dst = append(dst, e.Kind...)
	if block > 0 {
		dst = appendHeaders(dst, e.Headers)
	}
	dst = binary.AppendUvarint(dst, uint64(len(e.Payload)))
	return append(dst, e.Payload...), nil
}

// check reports everything about e that cannot be encoded, and returns the size of its headers block.
func check(e *Envelope) (block int, err error) {
	kindErr := ValidateKind(e.Kind)
	var headersErr, timeErr error
	size := 0
	for name, value := range e.Headers {
		size += len(name) + len(value)
		block += uvarintSize(len(name)) + len(name) + uvarintSize(len(value)) + len(value)
	}
	if size > MaxHeaders {
		headersErr = fmt.Errorf("headers have %d bytes, names and values together: want at most %d", size, MaxHeaders)
	}
	if !microsecondsFit(e) {
		timeErr = fmt.Errorf("enqueue time in the year %d: want one within 290,000 years of 1970", e.EnqueuedAt.Year())
	}
	if kindErr != nil || headersErr != nil || timeErr != nil {
		return 0, errors.Join(kindErr, headersErr, timeErr)
	}
	return block, nil
}

// microsecondsFit reports whether the enqueue time, in microseconds, fits 64 bits. UnixMicro wraps around without a
// word, so its answer is compared with the seconds.
func microsecondsFit(e *Envelope) bool {
	us := e.EnqueuedAt.UnixMicro()
	sec := us / 1e6
	if us%1e6 < 0 {
		sec--
	}
	return sec == e.EnqueuedAt.Unix()
}

func appendHeaders(dst []byte, headers map[string]string) []byte {
	var room [sortedInPlace]string
	names := room[:0]
	for name := range headers {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		value := headers[name]
		dst = binary.AppendUvarint(dst, uint64(len(name)))
		dst = append(dst, name...)
		dst = binary.AppendUvarint(dst, uint64(len(value)))
		dst = append(dst, value...)
	}
	return dst
}

// uvarintSize returns how many bytes the uvarint of n takes, for n ≥ 0.
func uvarintSize(n int) int { return (bits.Len64(uint64(n)|1) + 6) / 7 }
