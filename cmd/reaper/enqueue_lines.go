package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/leaseq/leaseq/lease"
)

// Bounds of what is read.
const (
	maxLine    = 4 << 20 // bytes of a line, without its end
	batchLines = 256     // lines that are not blank
	batchBytes = lease.MaxBytes
)

// A line is what one line of a file says: an item, or why it is none.
type line[T any] struct {
	number int64
	item   T
	err    error
}

// A batch is some lines of a file.
type batch[T any] struct {
	lines []line[T]
	last  int64 // the number of the last line that was read, blank or not
	read  int64 // bytes from the file's beginning
	end   error // io.EOF after the last line; another one where the file cannot be read on
}

// A lineSource makes batches out of lines.
type lineSource[T any] struct {
	in     *bufio.Reader
	most   int  // bytes of a line
	steady bool // reading does not wait for somebody to write
	from   int64
	parse  func(text []byte, number int64) (T, error)

	number int64
	read   int64
	text   []byte
}

func newLineSource[T any](in io.Reader, steady bool, from int64, parse func([]byte, int64) (T, error)) *lineSource[T] {
	return &lineSource[T]{in: bufio.NewReaderSize(in, 64<<10), most: maxLine, steady: steady, from: from, parse: parse}
}

// next reads the next batch. Where lines come slowly it does not wait until a batch is full.
func (s *lineSource[T]) next() *batch[T] {
	b := &batch[T]{}
	for bytes := 0; len(b.lines) < batchLines && bytes < batchBytes; {
		text, err := s.line()
		if err != nil && !errors.As(err, new(*longLineError)) {
			b.end = err
			break
		}
		switch {
		case s.number < s.from || err == nil && blank(text):
		case err != nil:
			b.lines = append(b.lines, line[T]{number: s.number, err: err})
		default:
			item, err := s.parse(text, s.number)
			b.lines = append(b.lines, line[T]{number: s.number, item: item, err: err})
			bytes += len(text)
		}
		if !s.steady && len(b.lines) > 0 && s.in.Buffered() == 0 {
			break
		}
	}
	b.last, b.read = s.number, s.read
	return b
}

// handOver reads batches in the background, since nothing can end a read from a terminal or a pipe, until the last one, or
// until over is closed.
func (s *lineSource[T]) handOver(over <-chan struct{}) <-chan *batch[T] {
	batches := make(chan *batch[T])
	go func() {
		for {
			next := s.next()
			select {
			case batches <- next:
			case <-over:
				return
			}
			if next.end != nil {
				return
			}
		}
	}()
	return batches
}

func blank(text []byte) bool { return len(bytes.TrimLeft(text, " \t\r")) == 0 }

// A longLineError refuses a line, of which not all was kept.
type longLineError struct {
	size int64
	most int
}

func (e *longLineError) Error() string {
	return fmt.Sprintf("the line has %d bytes: at most %d are allowed; a job that does not fit is enqueued by itself, with --file", e.size, e.most)
}

// line reads one line without its end, which is LF or CRLF; the last one needs none. The text is valid until the next
// call.
func (s *lineSource[T]) line() ([]byte, error) {
	s.text = s.text[:0]
	size := int64(0)
	for {
		part, err := s.in.ReadSlice('\n')
		s.read += int64(len(part))
		size += int64(len(part))
		if len(s.text)+len(part) <= s.most+2 {
			s.text = append(s.text, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err == io.EOF && size > 0:
		case err != nil:
			return nil, err
		}
		s.number++
		end := 0
		if size == int64(len(s.text)) {
			text := bytes.TrimSuffix(s.text, []byte("\n"))
			text = bytes.TrimSuffix(text, []byte("\r"))
			if len(text) <= s.most {
				return text, nil
			}
			end = len(s.text) - len(text)
		} else if err == nil {
			end = 1
		}
		return nil, &longLineError{size - int64(end), s.most}
	}
}
