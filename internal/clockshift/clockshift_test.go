package clockshift

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// asked turns the test binary into a program that answers each line on its standard input with what its clocks show.
const asked = "CLOCKSHIFT_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(asked) != "" {
		answer()
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func answer() {
	begun := time.Now()
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		now := time.Now()
		fmt.Println(now.UnixMilli(), now.Sub(begun).Milliseconds())
	}
}

func TestAProcessHasTheWallClockThatItIsGivenAndTheTrueMonotonicOne(t *testing.T) {
	t.Parallel()
	if err := Available(); err != nil {
		t.Skip(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asked+"=yes")
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	clock, err := Start(cmd, 10*time.Minute)
	require.NoError(t, err)
	begun := time.Now()
	answers := bufio.NewReader(out)
	shows := func() (off time.Duration, monotonic int64) {
		_, err := io.WriteString(in, "?\n")
		require.NoError(t, err)
		var wall int64
		_, err = fmt.Fscanln(answers, &wall, &monotonic)
		require.NoError(t, err)
		return time.Until(time.UnixMilli(wall)), monotonic
	}
	before := int64(0)
	for _, by := range []time.Duration{10 * time.Minute, time.Hour, -48 * time.Hour, 0} {
		require.NoError(t, clock.Set(by))
		off, monotonic := shows()
		assert.InDelta(t, by, off, float64(time.Minute))
		assert.GreaterOrEqual(t, monotonic, before, "the monotonic clock")
		assert.LessOrEqual(t, monotonic, time.Since(begun).Milliseconds()+1000, "the monotonic clock")
		before = monotonic
	}
	require.NoError(t, clock.Close())
	require.NoError(t, clock.Close())
	require.NoError(t, in.Close())
	require.NoError(t, cmd.Wait())
}

func TestWhereAProgramCannotBeStartedThereIsNoClock(t *testing.T) {
	t.Parallel()
	if err := Available(); err != nil {
		_, err := Start(exec.Command(os.Args[0]), time.Hour)
		require.ErrorIs(t, err, ErrUnavailable)
		t.Skip(err)
	}
	_, err := Start(exec.Command("/no/such/program"), time.Hour)
	require.ErrorIs(t, err, os.ErrNotExist)
}
