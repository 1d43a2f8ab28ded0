package clockshift

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
	"sync"
	"syscall"
	"time"
)

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

// Available says why the clock of a process cannot be shifted here, or nil. It has tried, once a process.
func Available() error { return tried() }

var tried = sync.OnceValue(func() error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	cmd := exec.Command(program)
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	clock, err := start(cmd, 0, false) // it is ended before its first instruction
	if err != nil {
		return err
	}
	return clock.Close()
})

// Start starts cmd, as its own Start does, with a wall clock that is off by so many whole seconds from its first
// instruction on. cmd.SysProcAttr is kept, but for its Ptrace. The error matches [ErrUnavailable] where the system does
// not allow it; no process is left after an error.
func Start(cmd *exec.Cmd, by time.Duration) (*Clock, error) { return start(cmd, by, true) }

// start holds the process by ptrace before its first instruction, changes its clock, and lets it go, or ends it.
func start(cmd *exec.Cmd, by time.Duration, live bool) (*Clock, error) {
	runtime.LockOSThread() // ptrace knows one thread
	defer runtime.UnlockOSThread()
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Ptrace = true
	if err := cmd.Start(); err != nil {
		if errors.Is(err, syscall.EPERM) {
			err = fmt.Errorf("%w: no process may be traced: %w", ErrUnavailable, err)
		}
		return nil, err
	}
	clock, err := hold(cmd.Process.Pid, by, live)
	if err != nil || !live {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	return clock, err
}

func hold(pid int, by time.Duration, live bool) (*Clock, error) {
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &status, 0, nil); err != nil {
		return nil, err
	}
	if !status.Stopped() {
		return nil, fmt.Errorf("the child has not stopped at its start: %#x", status)
	}
	clock, err := take(pid)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if err = clock.Set(by); err == nil && live {
		err = syscall.PtraceDetach(pid)
	}
	if err != nil {
		_ = clock.Close()
		return nil, err
	}
	return clock, nil
}

// take replaces the function in a process that is stopped.
func take(pid int) (*Clock, error) {
	base, err := vdsoOf(pid)
	if err != nil {
		return nil, err
	}
	memory, err := os.OpenFile("/proc/"+strconv.Itoa(pid)+"/mem", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	at, err := find(memory, base)
	if err == nil {
		_, err = memory.WriteAt(clockGettime, at)
	}
	if err != nil {
		_ = memory.Close()
		return nil, err
	}
	return &Clock{memory: memory, offset: at + shiftAt}, nil
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

// find is where clock_gettime begins, with enough room for ours.
func find(memory *os.File, base int64) (int64, error) {
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

// Set steps the process's wall clock: it is off by so many whole seconds from now on, counted from the true time.
func (c *Clock) Set(by time.Duration) error {
	var seconds [8]byte // aligned, and written at once
	binary.LittleEndian.PutUint64(seconds[:], uint64(int64(by/time.Second)))
	_, err := c.memory.WriteAt(seconds[:], c.offset)
	return err
}
