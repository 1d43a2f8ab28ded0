package reliable

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func fullEvent() Event {
	return Event{
		Queue: "orders", ID: "close:10086", Kind: "order.close", Attempt: 2, Fence: 1767323045000000,
		Wait: 3 * time.Millisecond, RunTime: 2 * time.Second, Err: errCard,
		NextRun: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	}
}

func attrKeys(e Event) (keys []string) {
	for _, a := range e.attrs() {
		keys = append(keys, a.Key)
	}
	return keys
}

func TestEventsHaveFixedFieldsInTheLog(t *testing.T) {
	t.Parallel()
	e := fullEvent()
	require.Equal(t, []string{"queue", "id", "kind", "attempt", "fence", "wait", "run_time", "error", "next_run"}, attrKeys(e))
	require.Equal(t, []string{"queue", "id", "kind", "attempt", "fence", "wait", "run_time"}, attrKeys(Event{Queue: "orders", ID: "1"}))
	require.Equal(t, []string{"queue", "error"}, attrKeys(Event{Queue: "orders", Err: errCard}))

	var out bytes.Buffer
	emit(t.Context(), slog.New(slog.NewTextHandler(&out, nil)), nil, eventRetry, e)
	_, line, _ := strings.Cut(out.String(), " ")
	require.Equal(t, `level=WARN msg="job retry" queue=orders id=close:10086 kind=order.close attempt=2 fence=1767323045000000`+
		` wait=3ms run_time=2s error="card declined" next_run=2026-01-02T03:04:05.000Z`+"\n", line)
}

func TestALogLineIsOneLineWhateverTheError(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		errors.New("a\nb\x1b[31m\x00\xe8" + strings.Repeat("€", 10<<20/3)), errors.New(""), &badError{with: "a\nb"},
	} {
		e := fullEvent()
		e.Err = err
		var text, encoded bytes.Buffer
		emit(t.Context(), slog.New(slog.NewTextHandler(&text, nil)), nil, eventDead, e)
		require.Equal(t, 1, strings.Count(text.String(), "\n"))
		require.Less(t, text.Len(), 2000)
		emit(t.Context(), slog.New(slog.NewJSONHandler(&encoded, nil)), nil, eventDead, e)
		var line struct{ Error string }
		require.NoError(t, json.Unmarshal(encoded.Bytes(), &line))
		require.Equal(t, reasonOf(err), line.Error)
	}
}

func TestEmitCallsTheHookAlsoWhereNothingIsLogged(t *testing.T) {
	t.Parallel()
	var got []Event
	hooks := &Hooks{OnStart: func(_ context.Context, e Event) { got = append(got, e) }}
	var out bytes.Buffer
	emit(t.Context(), slog.New(slog.NewTextHandler(&out, nil)), hooks, eventStart, fullEvent())
	emit(t.Context(), loggerOr(nil), hooks, eventStart, fullEvent())
	require.Equal(t, []Event{fullEvent(), fullEvent()}, got)
	require.Empty(t, out.String(), "a start is for debugging")
}

func TestAPanicOfAHookIsLogged(t *testing.T) {
	t.Parallel()
	hooks := &Hooks{OnError: func(context.Context, Event) { panic("hook is broken") }}
	var out bytes.Buffer
	emit(t.Context(), slog.New(slog.NewTextHandler(&out, nil)), hooks, eventError, Event{Queue: "orders", Err: errCard})
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, 2)
	require.Contains(t, lines[0], `level=ERROR msg="queue error" queue=orders error="card declined"`)
	require.Contains(t, lines[1], `level=ERROR msg="hook for error has panicked" queue=orders error="panic: hook is broken"`)
}

func TestLevelsTellWhatNeedsALook(t *testing.T) {
	t.Parallel()
	want := map[eventName]slog.Level{
		eventStart: slog.LevelDebug, eventDone: slog.LevelDebug, eventRelease: slog.LevelDebug, eventCancelled: slog.LevelInfo,
		eventRetry: slog.LevelWarn, eventLost: slog.LevelWarn, eventOverdue: slog.LevelWarn,
		eventDead: slog.LevelError, eventError: slog.LevelError,
	}
	require.Len(t, want, len(eventNames))
	for name, level := range want {
		require.Equal(t, level, levelOf(name), name)
	}
	require.Equal(t, slog.LevelError, levelOf("unheard of"))
}

func TestWithoutALoggerNothingIsWritten(t *testing.T) {
	t.Parallel()
	log := loggerOr(nil)
	require.NotSame(t, slog.Default(), log)
	require.False(t, log.Enabled(t.Context(), slog.LevelError))
	var out bytes.Buffer
	given := slog.New(slog.NewTextHandler(&out, nil))
	loggerOr(given).Info("a line")
	require.Contains(t, out.String(), "a line")
}
