package callback

import (
	"bytes"
	"context"
	"log/slog"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestALoggerWritesAsItDid(t *testing.T) {
	t.Parallel()
	withoutTime := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}
	lines := func(wrap func(*slog.Logger) *slog.Logger) string {
		var out bytes.Buffer
		log := wrap(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelInfo, ReplaceAttr: withoutTime})))
		log.Debug("no")
		log.With("a", 1).WithGroup("g").Info("yes", "b", 2)
		return out.String()
	}
	require.Equal(t, "level=INFO msg=yes a=1 g.b=2\n", lines(Logger))
	require.Equal(t, lines(func(log *slog.Logger) *slog.Logger { return log }), lines(Logger))
	none := Logger(nil)
	require.False(t, none.Enabled(t.Context(), slog.LevelError))
	guarded := Logger(slog.New(slog.NewTextHandler(&bytes.Buffer{}, nil)))
	require.Same(t, guarded, Logger(guarded))
}

// exiting calls Goexit, in one of its methods.
type exiting struct {
	slog.Handler
	enabled bool
}

func (e exiting) Enabled(context.Context, slog.Level) bool {
	if e.enabled {
		runtime.Goexit()
	}
	return true
}

func (e exiting) Handle(context.Context, slog.Record) error {
	runtime.Goexit()
	return nil
}

func TestALogHandlerThatCallsGoexitIsAPanic(t *testing.T) {
	t.Parallel()
	for _, h := range []slog.Handler{exiting{slog.DiscardHandler, true}, exiting{slog.DiscardHandler, false}} {
		caught := make(chan any, 1)
		go func() {
			defer func() { caught <- recover() }()
			Logger(slog.New(h)).Info("a line")
		}()
		require.Contains(t, <-caught, "the Logger's handler has called runtime.Goexit")
	}
}
