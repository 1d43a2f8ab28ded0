package chaos

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/leaseq/leaseq/chaos/record"
)

func containsText(text []byte, part string) bool { return bytes.Contains(text, []byte(part)) }

// beginAt is Begin for a fault that is known when it is over: what was answered from then on may be forgotten.
func (in *Injection) beginAt(from time.Time, effects ...string) error {
	began, err := in.storm.harnessBegan()
	if err != nil {
		return err
	}
	n := in.storm.faultNumber.Add(1)
	in.began = append(in.began, n)
	in.storm.rec.Write(&record.Event{
		Kind: record.Faulted, Call: n, Out: record.FaultBegin, Name: in.Fault.Name, Effects: effects, At: max(1, from.UnixMicro()-began),
	})
	return nil
}

// errEnough ends a read of a history.
var errEnough = errors.New("enough")

// harnessBegan is when the times of the harness' own history begin, µs since 1970.
func (s *storm) harnessBegan() (at int64, err error) {
	_, err = record.File(filepath.Join(s.histories, "harness.jsonl")).Each(func(e *record.Event) error {
		at = e.Wall
		return errEnough
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return at, err
}

// tailBytes is how much of a file is looked through for the last script.
const tailBytes = 4 << 20

// tear cuts the append-only file of a dead server in the middle of its last script, at a place that at, from 0 to 1,
// chooses. It does nothing where the file was not written since a time, or has no script near its end.
func tear(dir string, since time.Time, at float64) (bool, error) {
	files, err := filepath.Glob(filepath.Join(dir, "appendonlydir", "*.incr.aof"))
	if err != nil || len(files) == 0 {
		return false, err
	}
	slices.SortFunc(files, func(x, y string) int { // by number: a rewrite may have begun the last one
		if len(x) != len(y) {
			return len(x) - len(y)
		}
		return bytes.Compare([]byte(x), []byte(y))
	})
	file, err := os.OpenFile(files[len(files)-1], os.O_RDWR, 0)
	if err != nil {
		return false, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil || info.ModTime().Before(since) {
		return false, err
	}
	from := max(0, info.Size()-tailBytes)
	tail, err := io.ReadAll(io.NewSectionReader(file, from, info.Size()-from))
	if err != nil {
		return false, err
	}
	end := bytes.LastIndex(tail, []byte("*1\r\n$4\r\nEXEC\r\n"))
	if end < 0 {
		return false, nil
	}
	const begin = "*1\r\n$5\r\nMULTI\r\n"
	first := bytes.LastIndex(tail[:end], []byte(begin))
	if first < 0 {
		return false, nil
	}
	first += len(begin)
	keep := from + int64(first) + 1 + int64(at*float64(end-first-1))
	return true, file.Truncate(keep)
}
