package msgpackcodec

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// maxDepth is how deep the values of a payload may be nested.
const maxDepth = 1000

var errEmpty = errors.New("the payload is empty")

// checkOutline reports whether data is one MessagePack value, to the byte, whatever it means. Nothing is decoded before
// that: a decoder that follows a nesting without end, in a field that it ignores too, or that believes a length of four
// billion elements, ends the process.
//
// It needs no recursion and allocates at most a small list of how many values are still to come on each level.
func checkOutline(data []byte) error {
	if len(data) == 0 {
		return errEmpty
	}
	var room [32]uint64
	open := append(room[:0], 1) // the values still to come, of the whole and of each array and map around
	at := 0
	for len(open) > 0 {
		last := len(open) - 1
		if open[last] == 0 {
			open = open[:last]
			continue
		}
		open[last]--
		if at == len(data) {
			return fmt.Errorf("it ends early, after %d bytes", at)
		}
		h, err := readHead(data[at:])
		if err != nil {
			return fmt.Errorf("at byte %d: %w", at, err)
		}
		at += h.size
		left := uint64(len(data) - at)
		if h.body > left || h.values > left { // a value is a byte at least
			return fmt.Errorf("it ends early: at byte %d more is announced than the %d bytes that follow", at-h.size, left)
		}
		at += int(h.body)
		if h.nests {
			if open = append(open, h.values); len(open)-1 > maxDepth {
				return fmt.Errorf("it is nested deeper than %d levels", maxDepth)
			}
		}
	}
	if at != len(data) {
		return fmt.Errorf("the value ends at byte %d of %d", at, len(data))
	}
	return nil
}

// head is what the first bytes of a value tell.
type head struct {
	size   int    // of the head itself
	body   uint64 // bytes that follow and belong to the value
	nests  bool   // it is an array or a map
	values uint64 // that it holds; of a map keys and values
}

// Lengths that stand behind the first byte, and what they count.
const (
	countsBytes = iota
	countsTyped // bytes, and one more for the type of an extension
	countsValues
	countsPairs
)

var errUnused = errors.New("0xc1 begins no value")

func readHead(b []byte) (head, error) {
	switch first := b[0]; {
	case first <= 0x7f, first >= 0xe0: // fixint
		return head{size: 1}, nil
	case first <= 0x8f: // fixmap
		return head{size: 1, nests: true, values: 2 * uint64(first&0x0f)}, nil
	case first <= 0x9f: // fixarray
		return head{size: 1, nests: true, values: uint64(first & 0x0f)}, nil
	case first <= 0xbf: // fixstr
		return head{size: 1, body: uint64(first & 0x1f)}, nil
	}
	switch b[0] {
	case 0xc0, 0xc2, 0xc3: // nil, false, true
		return head{size: 1}, nil
	case 0xcc, 0xd0: // 8 bits
		return head{size: 1, body: 1}, nil
	case 0xcd, 0xd1:
		return head{size: 1, body: 2}, nil
	case 0xca, 0xce, 0xd2:
		return head{size: 1, body: 4}, nil
	case 0xcb, 0xcf, 0xd3:
		return head{size: 1, body: 8}, nil
	case 0xd4, 0xd5, 0xd6, 0xd7, 0xd8: // fixext 1, 2, 4, 8, 16
		return head{size: 1, body: 1 + 1<<(b[0]-0xd4)}, nil
	case 0xc4, 0xd9: // bin 8, str 8
		return readLength(b, 1, countsBytes)
	case 0xc5, 0xda:
		return readLength(b, 2, countsBytes)
	case 0xc6, 0xdb:
		return readLength(b, 4, countsBytes)
	case 0xc7: // ext 8
		return readLength(b, 1, countsTyped)
	case 0xc8:
		return readLength(b, 2, countsTyped)
	case 0xc9:
		return readLength(b, 4, countsTyped)
	case 0xdc: // array 16
		return readLength(b, 2, countsValues)
	case 0xdd:
		return readLength(b, 4, countsValues)
	case 0xde: // map 16
		return readLength(b, 2, countsPairs)
	case 0xdf:
		return readLength(b, 4, countsPairs)
	}
	return head{}, errUnused
}

// readLength reads the big-endian length of so many bytes behind the first one.
func readLength(b []byte, width, what int) (head, error) {
	if len(b) < 1+width {
		return head{}, errors.New("it ends early, in a length")
	}
	var whole [8]byte
	copy(whole[8-width:], b[1:1+width])
	n := binary.BigEndian.Uint64(whole[:])
	h := head{size: 1 + width}
	switch what {
	case countsBytes:
		h.body = n
	case countsTyped:
		h.body = n + 1
	case countsValues:
		h.nests, h.values = true, n
	case countsPairs:
		h.nests, h.values = true, 2*n
	}
	return h, nil
}
