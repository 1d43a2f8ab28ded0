package chaos

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/leaseq/leaseq/chaos/record"
)

// A Log is what one process has written. A [record.File] is one. Each hands its events to a function in their order, and
// returns the function's error; torn says that the last line was not whole, and was left out. It is read once, and once
// more where there are violations to show.
type Log interface {
	Each(func(*record.Event) error) (torn bool, err error)
}

// A History is what the processes of a run have written, in any order.
type History []Log

// Lines is a Log in memory.
type Lines []record.Event

// Each hands out copies.
func (l Lines) Each(each func(*record.Event) error) (torn bool, err error) {
	for i := range l {
		e := l[i]
		if err := each(&e); err != nil {
			return false, err
		}
	}
	return false, nil
}

// ReadDir finds the history in a folder: all files whose names end in .jsonl. A folder without any is an error.
func ReadDir(dir string) (History, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("no history in %s: want at least one file with a name that ends in .jsonl", dir)
	}
	slices.Sort(files)
	h := make(History, len(files))
	for i, file := range files {
		h[i] = record.File(file)
	}
	return h, nil
}
