package main

import (
	"context"
	"fmt"
	"io"
	"os"
)

// A payloadSource is where the command line says that a payload comes from.
type payloadSource struct {
	file, argument string // one of them; - as the argument is standard input
	in             io.Reader
	limit          int
	nothing        string // what is told where it is interrupted, as "nothing was enqueued"
}

// read reads the payload, never much more than may be sent.
func (s *payloadSource) read(ctx context.Context) ([]byte, error) {
	switch {
	case s.file != "":
		file, err := os.Open(s.file)
		if err != nil {
			return nil, fmt.Errorf("--file: %w", err)
		}
		defer file.Close()
		return s.all(file, s.file)
	case s.argument != "-":
		return []byte(s.argument), nil
	}
	type result struct {
		bytes []byte
		err   error
	}
	read := make(chan result, 1)
	go func() { // nothing can end a read from a terminal
		bytes, err := s.all(s.in, "standard input")
		read <- result{bytes, err}
	}()
	select {
	case got := <-read:
		return got.bytes, got.err
	case <-ctx.Done():
		return nil, fmt.Errorf("%s: %w", s.nothing, context.Cause(ctx))
	}
}

func (s *payloadSource) all(from io.Reader, name string) ([]byte, error) {
	bytes, err := io.ReadAll(io.LimitReader(from, int64(s.limit)+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("payload from %s: %w", name, err)
	case len(bytes) > s.limit:
		return nil, fmt.Errorf("payload from %s has more than %d bytes: want a greater --payload-limit, if the queue's consumers take that", name, s.limit)
	}
	return bytes, nil
}
