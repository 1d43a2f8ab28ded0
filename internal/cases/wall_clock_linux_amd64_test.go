package cases

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A wallClock is the wall clock of one child process, which shows what the test wants. The process is an unchanged
// program: it learns the time from the kernel, through the code that the kernel lays into every process for that (the
// vDSO), and it is that code that the test has replaced, before the first instruction of the program ran. What time.Now,
// a log line, a deadline or a library shows as the time of day is off by the shift; the monotonic clock and the time that
// passes are not.
type wallClock struct {
	memory *os.File
	offset int64 // the address of the shift in seconds, in the child
}

// clockGettime replaces the vDSO's clock_gettime(which, time): it asks the kernel, and adds to the seconds of clock 0
// (CLOCK_REALTIME) what stands 32 bytes after its own begin.
var clockGettime = []byte{
	0xb8, 0xe4, 0x00, 0x00, 0x00, // mov   eax, 228 (SYS_clock_gettime)
	0x0f, 0x05, //                   syscall
	0x85, 0xff, //                   test  edi, edi
	0x75, 0x0a, //                   jne   done
	0x48, 0x8b, 0x0d, 0x0e, 0, 0, 0, // mov   rcx, [rip+14]
	0x48, 0x01, 0x0e, //             add   [rsi], rcx
	0xc3, // done: ret
	0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90,
	0, 0, 0, 0, 0, 0, 0, 0, // seconds
}

const shiftAt = 32

// startShifted starts a registered program whose wall clock is off by so much from its first instruction on.
func startShifted(t testing.TB, name string, config any, by time.Duration) (*process, *wallClock) {
	t.Helper()
	var clock *wallClock
	p := startChildBy(t, name, config, func(cmd *exec.Cmd) (err error) {
		clock, err = startHeld(cmd, by)
		if errors.Is(err, syscall.EPERM) {
			t.Skipf("the wall clock of a process cannot be shifted here: %v", err)
		}
		return err
	})
	t.Cleanup(func() { _ = clock.memory.Close() })
	return p, clock
}

// startHeld starts a process, held by ptrace before its first instruction, changes its clock, and lets it go.
func startHeld(cmd *exec.Cmd, by time.Duration) (*wallClock, error) {
	runtime.LockOSThread() // ptrace knows one thread
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	pid := cmd.Process.Pid
	clock, err := func() (*wallClock, error) {
		var status syscall.WaitStatus
		if _, err := syscall.Wait4(pid, &status, 0, nil); err != nil {
			return nil, err
		}
		if !status.Stopped() {
			return nil, fmt.Errorf("the child has not stopped at its start: %#x", status)
		}
		clock, err := takeClock(pid)
		if err == nil {
			err = clock.set(by)
		}
		if err != nil {
			return nil, err
		}
		return clock, syscall.PtraceDetach(pid)
	}()
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	return clock, err
}

// takeClock replaces the function in a process that is stopped.
func takeClock(pid int) (*wallClock, error) {
	base, err := vdsoOf(pid)
	if err != nil {
		return nil, err
	}
	memory, err := os.OpenFile("/proc/"+strconv.Itoa(pid)+"/mem", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	at, err := findClock(memory, base)
	if err == nil {
		_, err = memory.WriteAt(clockGettime, at)
	}
	if err != nil {
		_ = memory.Close()
		return nil, err
	}
	return &wallClock{memory: memory, offset: at + shiftAt}, nil
}

// vdsoOf is where the kernel has laid its code into a process.
func vdsoOf(pid int) (int64, error) {
	const sysinfoEHDR = 33
	vector, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/auxv")
	if err != nil {
		return 0, err
	}
	for ; len(vector) >= 16; vector = vector[16:] {
		if binary.LittleEndian.Uint64(vector) == sysinfoEHDR {
			return int64(binary.LittleEndian.Uint64(vector[8:])), nil
		}
	}
	return 0, errors.New("the process has no vDSO")
}

// findClock is where clock_gettime begins, with enough room for ours.
func findClock(memory *os.File, base int64) (int64, error) {
	image := make([]byte, 64<<10)
	n, _ := memory.ReadAt(image, base) // as much as there is
	file, err := elf.NewFile(bytes.NewReader(image[:n]))
	if err != nil {
		return 0, fmt.Errorf("vDSO: %w", err)
	}
	symbols, err := file.DynamicSymbols()
	if err != nil {
		return 0, fmt.Errorf("vDSO: %w", err)
	}
	for _, one := range symbols {
		if one.Name == "__vdso_clock_gettime" && int(one.Size) >= len(clockGettime) && one.Value%8 == 0 {
			return base + int64(one.Value), nil
		}
	}
	return 0, errors.New("vDSO: no clock_gettime with enough room")
}

// set steps the process's wall clock: it is off by so many whole seconds from now on.
func (c *wallClock) set(by time.Duration) error {
	var seconds [8]byte // aligned, and written at once
	binary.LittleEndian.PutUint64(seconds[:], uint64(int64(by/time.Second)))
	_, err := c.memory.WriteAt(seconds[:], c.offset)
	return err
}

// step is set for a test.
func (c *wallClock) step(t testing.TB, by time.Duration) {
	t.Helper()
	require.NoError(t, c.set(by))
}
