package cases

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A mark is one line of the append-only file in which handlers note what they do, outside the product, so that a kill
// cannot hide it.
type mark struct {
	What    string // as start, effect, end
	ID      string
	Attempt int
	Fence   int64
	PID     int
	At      int64 // µs, the machine's clock
	Clock   int64 // µs, Redis' clock, where the handler asked for it
	Note    string
}

// marksFile makes the path of such a file.
func marksFile(t testing.TB) string { return filepath.Join(t.TempDir(), "marks.jsonl") }

// putMark appends one line with a single write; safe from many processes.
func putMark(path string, m mark) {
	m.PID, m.At = os.Getpid(), time.Now().UnixMicro()
	line, _ := json.Marshal(m)
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	if _, err := f.Write(append(line, '\n')); err != nil {
		panic(err)
	}
}

// readMarks reads them; a last line that a kill cut short does not count.
func readMarks(t testing.TB, path string) []mark {
	t.Helper()
	f, err := os.Open(path)
	if os.IsNotExist(err) {
		return nil
	}
	require.NoError(t, err)
	defer f.Close()
	var out []mark
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var m mark
		if json.Unmarshal(lines.Bytes(), &m) == nil {
			out = append(out, m)
		}
	}
	return out
}

// marksOf picks those of one sort.
func marksOf(all []mark, what string) []mark {
	var out []mark
	for _, m := range all {
		if m.What == what {
			out = append(out, m)
		}
	}
	return out
}
