package demo

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// A line is what a worker wrote down: one JSON object.
type line struct {
	Time   time.Time `json:"time"` // by the worker's clock
	Event  event     `json:"event"`
	Worker string    `json:"worker"`
	PID    int       `json:"pid"`

	ID       string  `json:"id,omitempty"`
	Kind     string  `json:"kind,omitempty"`
	Attempt  int     `json:"attempt,omitempty"`
	Failures int     `json:"failures,omitempty"` // of a start: what Redis had counted before
	Expiries int     `json:"expiries,omitempty"`
	Fence    int64   `json:"fence,omitempty"`
	Effect   string  `json:"effect,omitempty"`  // of an effect and of a doubt: its name
	Outcome  outcome `json:"outcome,omitempty"` // of a finish
	Reason   string  `json:"reason,omitempty"`  // of a finish, or of trouble
}

type event string

const (
	isUp      event = "up"      // the worker began
	isStart   event = "start"   // a handler began with a job
	isDoubt   event = "doubt"   // the guard said that the effect was begun before, and may have happened
	isEffect  event = "effect"  // it did what cannot be undone
	isFinish  event = "finish"  // Redis answered its verdict
	isTrouble event = "trouble" // a call failed, and is repeated; for readers only
	isDown    event = "down"    // the worker ended in order: one that was killed has no such line
)

type outcome string

const (
	wasAcked     outcome = "acked"
	wasRetried   outcome = "retry"
	wasBuried    outcome = "dead"
	wasReleased  outcome = "released"
	wasLost      outcome = "lost" // the verdict came late, and was refused
	wasCancelled outcome = "cancelled"
)

// accepted says whether Redis took the verdict.
func (o outcome) accepted() bool { return o != wasLost }

// A recorder appends lines to the file that all workers share. Each line is one write, so lines do not mix.
type recorder struct {
	mu     sync.Mutex
	file   *os.File
	worker string
	failed func(error) // called when a line could not be written
}

func newRecorder(path, worker string, failed func(error)) (*recorder, error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return nil, err
	}
	return &recorder{file: file, worker: worker, failed: failed}, nil
}

func (r *recorder) write(l line) {
	l.Time, l.Worker, l.PID = time.Now().UTC(), r.worker, os.Getpid()
	text, err := json.Marshal(l)
	if err == nil {
		r.mu.Lock()
		_, err = r.file.Write(append(text, '\n'))
		r.mu.Unlock()
	}
	if err != nil {
		r.failed(fmt.Errorf("a line for the ledger was not written: %w", err))
	}
}

func (r *recorder) close() error { return r.file.Close() }

// A follower reads the file while it grows.
type follower struct {
	file *os.File
	rest []byte // the beginning of a line whose end is not there yet
	read int    // lines
}

func follow(path string) (*follower, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	return &follower{file: file}, nil
}

// next returns the lines that have come since the last call.
func (f *follower) next() ([]line, error) {
	text, err := io.ReadAll(f.file)
	if err != nil {
		return nil, err
	}
	f.rest = append(f.rest, text...)
	var lines []line
	for {
		end := bytes.IndexByte(f.rest, '\n')
		if end < 0 {
			return lines, nil
		}
		var l line
		if err := json.Unmarshal(f.rest[:end], &l); err != nil {
			return lines, fmt.Errorf("line %d of the workers' file is not one of ours: %w", f.read+1, err)
		}
		f.rest = f.rest[end+1:]
		f.read++
		lines = append(lines, l)
	}
}

func (f *follower) close() { _ = f.file.Close() }

// readLines reads the whole file. A line without an end is an error: nobody can say what it would have told.
func readLines(path string) ([]line, error) {
	f, err := follow(path)
	if err != nil {
		return nil, err
	}
	defer f.close()
	lines, err := f.next()
	if err == nil && len(f.rest) > 0 {
		err = fmt.Errorf("line %d of the workers' file has no end", f.read+1)
	}
	return lines, err
}
