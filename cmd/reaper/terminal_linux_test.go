package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/redistest"
)

// terminal opens a pseudo-terminal: what a person has before them, and what a program has.
func terminal(t *testing.T) (person, program *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo-terminal: %v", err)
	}
	control := func(request uintptr, value *int32) {
		_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, person.Fd(), request, uintptr(unsafe.Pointer(value)))
		require.Zero(t, errno)
	}
	number, unlocked := int32(0), int32(0)
	control(syscall.TIOCSPTLCK, &unlocked)
	control(syscall.TIOCGPTN, &number)
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	return person, program
}

// onTerminal runs the program as a process on a terminal, where somebody answers its question, and returns what was to
// be seen there.
func onTerminal(t *testing.T, url, answer string, args ...string) (code int, screen string) {
	t.Helper()
	path, err := build()
	require.NoError(t, err)
	person, program := terminal(t)
	defer person.Close()
	cmd := exec.Command(path, args...)
	cmd.Env = []string{"LEASEQ_REDIS=" + url}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = program, program, program
	require.NoError(t, cmd.Start())
	require.NoError(t, program.Close())
	var seen pad
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(&seen, person) // ends when the program has
	}()
	if answer != "" {
		if !assert.Eventually(t, func() bool { return strings.Contains(seen.String(), "Type ") }, within, 5*time.Millisecond) {
			_ = cmd.Process.Kill()
		}
		_, err = person.WriteString(answer + "\n")
		require.NoError(t, err)
	}
	err = cmd.Wait()
	<-read
	t.Log(seen.String())
	if err != nil {
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit)
	}
	return cmd.ProcessState.ExitCode(), seen.String()
}

func TestOnATerminalADeletionAsksForTheQueuesName(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	store := newStore(t, redistest.Client(t), s.prefix, s.queue, time.Minute)
	enqueue(t, store, "a", "b", "c")
	for _, answer := range []string{"yes", s.queue[:len(s.queue)-1], " " + s.queue} {
		code, screen := onTerminal(t, serverURL(t), answer, "queue", "delete", s.queue, "--prefix", s.prefix)
		assert.Equal(t, exitFailure, code)
		assert.Contains(t, screen, "This cannot be undone.")
		assert.Contains(t, screen, "that is not its name: nothing was deleted")
		assert.EqualValues(t, 3, s.stats(t).Due)
	}
	code, screen := onTerminal(t, serverURL(t), s.queue, "queue", "delete", s.queue, "--prefix", s.prefix)
	assert.Zero(t, code)
	assert.Contains(t, screen, "3 jobs deleted, 0 left", "the bar")
	assert.Contains(t, screen, "Deleted: 3 jobs, 0 idempotency records, the name in the registry")
	assert.Empty(t, redistest.Dump(t, redistest.Client(t), s.prefix, s.queue))
}

func TestOnATerminalWhatCannotBeUndoneIsAskedFor(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.kill(t, errors.New("why"), job("a"), job("b"))
	s.put(t, later("c"))
	code, screen := onTerminal(t, serverURL(t), "yes", "purge", s.queue, "--all", "--prefix", s.prefix)
	assert.Equal(t, exitFailure, code)
	assert.Contains(t, screen, "2 jobs in dead would go. This cannot be undone.")
	assert.Contains(t, screen, "that is not its name: nothing was deleted")
	assert.EqualValues(t, 2, s.stats(t).Dead)
	code, screen = onTerminal(t, serverURL(t), s.queue, "purge", s.queue, "--all", "--prefix", s.prefix)
	assert.Zero(t, code)
	assert.Contains(t, screen, "2 jobs purged")
	code, screen = onTerminal(t, serverURL(t), "no", "cancel", s.queue, "c", "--prefix", s.prefix)
	assert.Equal(t, exitFailure, code)
	assert.Contains(t, screen, "1 jobs go for good")
	assert.EqualValues(t, 1, s.stats(t).Due)
	code, screen = onTerminal(t, serverURL(t), "yes", "cancel", s.queue, "c", "--prefix", s.prefix)
	assert.Zero(t, code)
	assert.Contains(t, screen, "c  cancelled")
}

func TestOnATerminalABulkShowsHowFarItIs(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	path := lineFile(t, strings.Repeat("{\"kind\":\"mail\"}\n", 300)+"nonsense\n"+strings.Repeat("{\"kind\":\"mail\"}\n", 300))
	code, screen := onTerminal(t, serverURL(t), "", "enqueue", s.queue, "--jsonl", path, "--prefix", s.prefix)
	assert.Equal(t, exitFailure, code)
	assert.Contains(t, screen, "line 256: 256 created, 0 there already, 0 failed")
	// What stays on the screen is the text since the line was last cleared.
	assert.Contains(t, screen, "\x1b[2Kline 301: not JSON")
	assert.Contains(t, screen, "600 created, 0 there already, 1 failed")
}
