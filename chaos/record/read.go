package record

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// maxLine bounds a line: an ID of 256 bytes, each escaped, and the rest.
const maxLine = 16 << 10

// Read hands the events of one file to each, in their order, until it returns an error, which Read returns. torn is true
// where the last line is not whole, or not even the first was written, as a process that was killed leaves it: that
// line is left out. A line that cannot be read anywhere else, a first line that is none of kind open, and another version of the format are
// errors. The *Event is valid until each returns.
func Read(in io.Reader, each func(*Event) error) (torn bool, err error) {
	lines := bufio.NewReaderSize(in, maxLine)
	for n := 1; ; n++ {
		line, err := lines.ReadSlice('\n')
		switch {
		case err == io.EOF:
			return len(line) > 0 || n == 1, nil
		case errors.Is(err, bufio.ErrBufferFull):
			return false, fmt.Errorf("line %d is longer than %d bytes", n, maxLine)
		case err != nil:
			return false, err
		}
		var e Event
		if err := json.Unmarshal(line, &e); err != nil {
			return false, fmt.Errorf("line %d: %w", n, err)
		}
		switch {
		case e.Kind == "":
			return false, fmt.Errorf("line %d has no kind", n)
		case (n == 1) != (e.Kind == Opened):
			return false, fmt.Errorf("line %d is of kind %q: want open on the first line, and only there", n, e.Kind)
		case n == 1 && e.Version != Version:
			return false, fmt.Errorf("version %d of the format: this reader knows %d", e.Version, Version)
		}
		if err := each(&e); err != nil {
			return false, err
		}
	}
}

// A File is the path of a history file.
type File string

// Each reads the file as Read does.
func (f File) Each(each func(*Event) error) (torn bool, err error) {
	in, err := os.Open(string(f))
	if err != nil {
		return false, err
	}
	defer in.Close()
	torn, err = Read(in, each)
	if err != nil {
		err = fmt.Errorf("%s: %w", string(f), err)
	}
	return torn, err
}
