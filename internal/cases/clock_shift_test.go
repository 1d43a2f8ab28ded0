//go:build unix

package cases

import (
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The child says for ever what its clocks show.
var _ = child("clock", func([]byte) int {
	begun := time.Now()
	log := slog.New(slog.NewTextHandler(os.Stdout, nil))
	for range time.Tick(10 * time.Millisecond) {
		now := time.Now()
		log.Info("tick", "wall", now.UnixMilli(), "monotonic", now.Sub(begun).Milliseconds())
	}
	return 0
})

// What S67 stands on: a process whose wall clock is shifted and stepped does not notice otherwise, and its log shows it.
func TestAShiftedProcessHasAnotherTimeOfDayAndTheSameMonotonicClock(t *testing.T) {
	t.Parallel()
	p, clock := startShifted(t, "clock", nil, 10*time.Minute)
	shows := func() (off time.Duration, monotonic int64, logged time.Duration) {
		var wall int64
		line := <-p.Lines
		at, rest, _ := strings.Cut(strings.TrimPrefix(line, "time="), " ")
		stamp, err := time.Parse("2006-01-02T15:04:05.000Z07:00", at)
		require.NoError(t, err, line)
		_, err = fmt.Sscanf(rest[strings.Index(rest, "wall="):], "wall=%d monotonic=%d", &wall, &monotonic)
		require.NoError(t, err, line)
		return time.Until(time.UnixMilli(wall)), monotonic, time.Until(stamp)
	}
	off, before, logged := shows()
	assert.InDelta(t, 10*time.Minute, off, float64(time.Minute))
	assert.InDelta(t, 10*time.Minute, logged, float64(time.Minute), "in the log")
	for _, by := range []time.Duration{time.Hour, -time.Hour} {
		clock.step(t, by)
		require.Eventually(t, func() bool {
			off, now, logged := shows()
			assert.GreaterOrEqual(t, now, before, "the monotonic clock")
			assert.Less(t, now-before, int64(time.Minute/time.Millisecond), "the monotonic clock")
			before = now
			return (off-by).Abs() < time.Minute && (logged-by).Abs() < time.Minute
		}, time.Minute, time.Microsecond, "a step by %s", strconv.Quote(by.String()))
	}
}
