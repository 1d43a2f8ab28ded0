package servershim

import (
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

//go:embed preload/servershim.c
var source []byte

const (
	libraryName = "servershim.so"
	controlName = "servershim.control"
	variable    = "LEASEQ_SHIM"
)

// The layout of the control file is that of struct control in preload/servershim.c: numbers of eight bytes in the
// machine's order, and a table.
const (
	shiftAt   = 0
	stallAt   = 8
	loadsAt   = 16
	begunAt   = 24
	endedAt   = 32
	waitingAt = 40
	lastAt    = 48
	slotsAt   = 4096
	slots     = 32768
	slotSize  = 32
)

// Build compiles the library, once a process. dir is where it and its control file go: it is made if it is missing, and
// Close removes the two files from it. An empty dir means a new folder under [os.TempDir], which Close removes.
//
// The error matches [ErrUnavailable] where the system is not Linux, or has no cc, or cc makes no such library; nothing is
// left then.
func Build(dir string) (*Shim, error) {
	library, err := compiled.get()
	if err != nil {
		return nil, fmt.Errorf("servershim: %w", err)
	}
	s := &Shim{}
	if dir == "" {
		dir, err = os.MkdirTemp("", "leaseq-shim-")
		s.temp = dir
	} else {
		err = os.MkdirAll(dir, 0o700)
	}
	if err == nil {
		dir, err = filepath.Abs(dir) // the server works in another folder
	}
	if err == nil {
		err = s.put(dir, library)
	}
	if err != nil {
		return nil, fmt.Errorf("servershim: %w", errors.Join(err, s.Close()))
	}
	return s, nil
}

// put writes the two files.
func (s *Shim) put(dir string, library []byte) error {
	if strings.ContainsAny(dir, " :") {
		return fmt.Errorf("%q holds a blank or a colon, which LD_PRELOAD cannot name", dir)
	}
	control, err := os.OpenFile(filepath.Join(dir, controlName), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	s.control, s.library = control, filepath.Join(dir, libraryName)
	if err := control.Truncate(slotsAt + slots*slotSize); err != nil { // a file with holes: hardly anything is stored
		return err
	}
	return os.WriteFile(s.library, library, 0o600)
}

// compiled is the library of this process.
var compiled compiling

// A compiling is a library that is compiled when it is first asked for, and again after a failure.
type compiling struct {
	mu      sync.Mutex
	library []byte
}

func (c *compiling) get() ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.library == nil {
		library, err := compile()
		if err != nil {
			return nil, err
		}
		c.library = library
	}
	return c.library, nil
}

// compile has cc make the library, in a folder that is gone when it returns.
func compile() ([]byte, error) {
	compiler, err := exec.LookPath("cc")
	if err != nil {
		return nil, fmt.Errorf("%w: needs cc, a C compiler, on PATH: %w", ErrUnavailable, err)
	}
	dir, err := os.MkdirTemp("", "leaseq-shim-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	from, to := filepath.Join(dir, "servershim.c"), filepath.Join(dir, libraryName)
	if err := os.WriteFile(from, source, 0o600); err != nil {
		return nil, err
	}
	out, err := exec.Command(compiler, "-shared", "-fPIC", "-O1", "-o", to, from, "-ldl").CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%w: %s does not compile it: %w\n%s", ErrUnavailable, compiler, err, out)
	}
	return os.ReadFile(to)
}

// Env is what the server's environment needs, for redisproc.Options.Env. A LD_PRELOAD of this process is not passed on.
func (s *Shim) Env() []string {
	return []string{"LD_PRELOAD=" + s.library, variable + "=" + s.control.Name()}
}

// Shift has the server's wall clock be off by d, to the microsecond, from now on: positive is ahead, 0 is right again.
// It counts from the true time, not from what the clock showed before, and holds over restarts.
func (s *Shim) Shift(d time.Duration) error { return s.tell(shiftAt, d.Microseconds()) }

// StallSyncs has syncs wait, from the next one that begins, or lets all go on. Each waits for 30 s at most. It holds over
// restarts, where it holds up the start too.
func (s *Shim) StallSyncs(on bool) error {
	if on {
		return s.tell(stallAt, 1)
	}
	return s.tell(stallAt, 0)
}

// tell writes one number. The server sees the whole of it at its next look.
func (s *Shim) tell(at int64, n int64) error {
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], uint64(n))
	if _, err := s.control.WriteAt(b[:], at); err != nil {
		return fmt.Errorf("servershim: %w", err)
	}
	return nil
}

// State tells what was noted so far. Of a server that was killed it stays until the next start.
func (s *Shim) State() (State, error) {
	var b [lastAt + 8]byte
	if _, err := s.control.ReadAt(b[:], 0); err != nil {
		return State{}, fmt.Errorf("servershim: %w", err)
	}
	number := func(at int) int64 { return int64(binary.NativeEndian.Uint64(b[at:])) }
	state := State{Loads: number(loadsAt), Begun: number(begunAt), Ended: number(endedAt), Waiting: number(waitingAt)}
	if last := number(lastAt); last != 0 {
		state.LastBegun = time.UnixMicro(last)
	}
	return state, nil
}

// CutToSynced makes a power cut of a crash: each file in dir, the server's, and in the folders below that the server has
// written to is cut to what was synced of it, as the package's documentation says. The server must have been killed
// before and not be started again yet. What is left counts as on the disk from then on.
//
// cut is how many bytes went, of all files together. After an error some files may be cut and others not: it is safe to
// call it again.
func (s *Shim) CutToSynced(dir string) (cut int64, err error) {
	synced, err := s.synced()
	if err != nil {
		return 0, fmt.Errorf("servershim: %w", err)
	}
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			var n int64
			n, err = cutFile(path, synced)
			cut += n
		}
		if path != dir && errors.Is(err, fs.ErrNotExist) {
			return nil // a child of the server that is still there has removed or renamed it
		}
		return err
	})
	if err != nil {
		return cut, fmt.Errorf("servershim: %w", err)
	}
	return cut, nil
}

// cutFile cuts one file, and returns how many bytes went.
func cutFile(path string, synced map[uint64]int64) (int64, error) {
	var file syscall.Stat_t
	if err := syscall.Stat(path, &file); err != nil {
		return 0, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	length, noted := synced[keyOf(&file)]
	if !noted || length >= file.Size {
		return 0, nil
	}
	if err := os.Truncate(path, length); err != nil {
		return 0, err
	}
	return file.Size - length, nil
}

// synced reads the table: how much of each file is on the disk.
func (s *Shim) synced() (map[uint64]int64, error) {
	table := make([]byte, slots*slotSize)
	if _, err := s.control.ReadAt(table, slotsAt); err != nil {
		return nil, err
	}
	all := map[uint64]int64{}
	for ; len(table) > 0; table = table[slotSize:] {
		if key := binary.NativeEndian.Uint64(table); key != 0 {
			all[key] = int64(binary.NativeEndian.Uint64(table[8:]))
		}
	}
	return all, nil
}

// keyOf is what the library knows a file by.
func keyOf(file *syscall.Stat_t) uint64 {
	key := file.Ino + uint64(file.Dev)*0x9e3779b97f4a7c15
	if key == 0 {
		key = 1
	}
	return key
}

// Close removes the library and its control file. A server that has loaded them goes on with them; it cannot be started
// again. Close twice is no error.
func (s *Shim) Close() error {
	if s.temp != "" {
		err := os.RemoveAll(s.temp)
		if s.control != nil {
			_ = s.control.Close()
		}
		return err
	}
	var problems []error
	if s.control != nil {
		_ = s.control.Close()
		problems = append(problems, os.Remove(s.control.Name()), os.Remove(s.library))
	}
	for i, err := range problems {
		if errors.Is(err, fs.ErrNotExist) {
			problems[i] = nil
		}
	}
	return errors.Join(problems...)
}
