package servershim

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func build(t *testing.T) *Shim {
	t.Helper()
	s, err := Build("")
	if errors.Is(err, ErrUnavailable) {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// A probe is a small program that does to files in a folder what it is told, with the shim preloaded.
type probe struct {
	t       *testing.T
	shim    *Shim
	program string
	dir     string
}

func newProbe(t *testing.T) *probe {
	t.Helper()
	p := &probe{t: t, shim: build(t), program: filepath.Join(t.TempDir(), "probe"), dir: t.TempDir()}
	out, err := exec.Command("cc", "-Wall", "-Wextra", "-Werror", "-o", p.program, filepath.Join("testdata", "probe.c")).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return p
}

func (p *probe) command(deeds string) *exec.Cmd {
	cmd := exec.Command(p.program, strings.Fields(deeds)...)
	cmd.Dir, cmd.Env = p.dir, append(os.Environ(), p.shim.Env()...)
	return cmd
}

func (p *probe) run(deeds string) string {
	p.t.Helper()
	out, err := p.command(deeds).CombinedOutput()
	require.NoError(p.t, err, "%s", out)
	return string(out)
}

// left is how long each file is after a power cut.
func (p *probe) left() map[string]int64 {
	p.t.Helper()
	before := p.sizes()
	cut, err := p.shim.CutToSynced(p.dir)
	require.NoError(p.t, err)
	after := p.sizes()
	sum := int64(0)
	for name := range before {
		sum += before[name] - after[name]
	}
	require.Equal(p.t, sum, cut)
	return after
}

func (p *probe) sizes() map[string]int64 {
	p.t.Helper()
	all := map[string]int64{}
	entries, err := os.ReadDir(p.dir)
	require.NoError(p.t, err)
	for _, entry := range entries {
		info, err := entry.Info()
		require.NoError(p.t, err)
		all[entry.Name()] = info.Size()
	}
	return all
}

func TestAPowerCutLeavesOfEachFileWhatWasSynced(t *testing.T) {
	t.Parallel()
	p := newProbe(t)
	require.NoError(t, os.WriteFile(filepath.Join(p.dir, "before"), make([]byte, 70), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(p.dir, "untouched"), make([]byte, 70), 0o600))
	for _, deeds := range []string{
		"open never append 10",
		"open synced append 10 fdatasync append 5 fdatasync append 7",
		"open fsynced append 10 fsync append 5",
		"open inTheChild append 10 childsync append 5",
		"open before append 10",
		"fopen stream append 10 fsync append 5",
		"open first append 10 fsync append 3 close rename first renamed",
		"open shorter append 10 fsync truncate 4 append 9",
		"open shorterAndSynced append 10 fsync truncate 4 append 9 fsync append 2",
		"open again append 10 fsync close remove again open again append 20",
		"open closed append 10 fdatasync close open closed append 5",
	} {
		p.run(deeds)
	}
	want := map[string]int64{
		"never": 0, "synced": 15, "fsynced": 10, "inTheChild": 10, "before": 70, "untouched": 70, "stream": 10, "renamed": 10,
		"shorter": 4, "shorterAndSynced": 13, "again": 0, "closed": 10,
	}
	require.Equal(t, want, p.left())
	p.run("open never append 3 fsync append 1")
	want["never"] = 3
	require.Equal(t, want, p.left(), "what a power cut has left stays")
	state, err := p.shim.State()
	require.NoError(t, err)
	require.EqualValues(t, 12, state.Loads)
}

func TestASyncIsSureOfWhatTheFileHeldWhenItBegan(t *testing.T) {
	t.Parallel()
	p := newProbe(t)
	path := filepath.Join(p.dir, "file")
	require.NoError(t, p.shim.StallSyncs(true))
	cmd := p.command("open file append 10 fdatasync")
	require.NoError(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill() }()
	awaitState(t, p.shim, func(s State) bool { return s.Waiting == 1 })
	more, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	require.NoError(t, err)
	_, err = more.WriteString("more")
	require.NoError(t, err)
	require.NoError(t, more.Close())
	require.NoError(t, p.shim.StallSyncs(false))
	require.NoError(t, cmd.Wait())
	state, err := p.shim.State()
	require.NoError(t, err)
	require.Equal(t, State{Loads: 1, Begun: 1, Ended: 1, LastBegun: state.LastBegun}, state)
	require.WithinDuration(t, time.Now(), state.LastBegun, 10*time.Second)
	require.Equal(t, map[string]int64{"file": 10}, p.left())
}

func TestASyncThatWasKilledIsNone(t *testing.T) {
	t.Parallel()
	p := newProbe(t)
	require.NoError(t, p.shim.StallSyncs(true))
	cmd := p.command("open file append 10 fdatasync")
	require.NoError(t, cmd.Start())
	awaitState(t, p.shim, func(s State) bool { return s.Waiting == 1 })
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	state, err := p.shim.State()
	require.NoError(t, err)
	require.Equal(t, State{Loads: 1, Begun: 1, Waiting: 1, LastBegun: state.LastBegun}, state)
	require.Equal(t, map[string]int64{"file": 0}, p.left())
}

func TestClocksOfTheWallAreShiftedAndTheMonotonicOneIsNot(t *testing.T) {
	t.Parallel()
	p := newProbe(t)
	for _, shift := range []time.Duration{0, 90 * time.Minute, -48 * time.Hour, 1500 * time.Microsecond} {
		require.NoError(t, p.shim.Shift(shift))
		before := time.Now().Add(shift)
		var monotonic int
		var real, ofDay, seconds int64
		_, err := fmt.Sscan(p.run("clocks"), &monotonic, &real, &ofDay, &seconds)
		require.NoError(t, err)
		after := time.Now().Add(shift)
		assert.Equal(t, 1, monotonic, "the monotonic clock is that of the kernel")
		for _, us := range []int64{real, ofDay} {
			assert.True(t, us >= before.UnixMicro() && us <= after.UnixMicro(), "%v to %v, shown is %v", before, after, time.UnixMicro(us))
		}
		assert.True(t, seconds >= before.Unix() && seconds <= after.Unix())
	}
}

func TestWithoutACompilerTheErrorSaysWhatIsMissingAndNothingIsLeft(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	t.Setenv("PATH", "")
	var c compiling
	_, err := c.get()
	require.ErrorIs(t, err, ErrUnavailable)
	require.ErrorContains(t, err, "needs cc")

	bin := t.TempDir()
	syscall.ForkLock.RLock() // a process started meanwhile would have the file open for writing, and then it cannot be run
	err = os.WriteFile(filepath.Join(bin, "cc"), []byte("#!/bin/sh\necho no headers >&2\nexit 1\n"), 0o700)
	syscall.ForkLock.RUnlock()
	require.NoError(t, err)
	t.Setenv("PATH", bin)
	_, err = c.get()
	require.ErrorIs(t, err, ErrUnavailable)
	require.ErrorContains(t, err, "no headers")
	left, err := os.ReadDir(temp)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestAFolderOfOnesOwnIsLeftWithoutTheFiles(t *testing.T) {
	t.Parallel()
	build(t) // or skip
	dir := filepath.Join(t.TempDir(), "deep", "er")
	s, err := Build(dir)
	require.NoError(t, err)
	_, err = Build(dir)
	require.ErrorIs(t, err, os.ErrExist, "one shim a folder")
	for _, pair := range s.Env() {
		_, path, _ := strings.Cut(pair, "=")
		require.FileExists(t, path)
		require.Equal(t, dir, filepath.Dir(path))
	}
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
	_, err = Build(filepath.Join(dir, "with a blank"))
	require.ErrorContains(t, err, "LD_PRELOAD")
}

func TestTheLibraryCompilesWithoutAWarning(t *testing.T) {
	t.Parallel()
	build(t) // or skip
	out, err := exec.Command("cc", "-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", "-o", filepath.Join(t.TempDir(), "out"),
		filepath.Join("preload", "servershim.c"), "-ldl").CombinedOutput()
	require.NoError(t, err, "%s", out)
}

func awaitState(t *testing.T, s *Shim, ok func(State) bool) {
	t.Helper()
	require.Eventually(t, func() bool {
		state, err := s.State()
		return err == nil && ok(state)
	}, 20*time.Second, time.Millisecond)
}
