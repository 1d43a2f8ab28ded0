package reliable

import (
	"context"
	"log/slog"

	"github.com/leaseq/leaseq/internal/callback"
)

// emit writes one line to the log ("job done", "queue error") and calls the hook for an event. hooks may be nil. A hook that panics is logged as
// a line of its own.
func emit(ctx context.Context, log *slog.Logger, hooks *Hooks, name eventName, e Event) {
	if level := levelOf(name); log.Enabled(ctx, level) {
		subject := "job "
		if e.ID == "" {
			subject = "queue "
		}
		log.LogAttrs(ctx, level, subject+string(name), e.attrs()...)
	}
	if err := hooks.fire(ctx, name, e); err != nil {
		e.Err = err
		log.LogAttrs(ctx, slog.LevelError, "hook for "+string(name)+" has panicked", e.attrs()...)
	}
}

// levelOf returns the level of an event in the log: debug for what is as it should be, info for what somebody asked
// for, warn for what costs a further run, error for what somebody should look at.
func levelOf(name eventName) slog.Level {
	switch name {
	case eventStart, eventDone, eventRelease:
		return slog.LevelDebug
	case eventCancelled:
		return slog.LevelInfo
	case eventRetry, eventLost, eventOverdue:
		return slog.LevelWarn
	case eventDead, eventError:
		return slog.LevelError
	}
	return slog.LevelError
}

// attrs returns the event's fields for the log, always under the same names and in the same order: queue; of an event
// about one job id, kind, attempt, fence, wait and run_time; error and next_run where there are such. The error is
// one line of at most 512 bytes, whatever its text.
func (e Event) attrs() []slog.Attr {
	attrs := make([]slog.Attr, 0, 9)
	attrs = append(attrs, slog.String("queue", e.Queue))
	if e.ID != "" {
		attrs = append(attrs,
			slog.String("id", e.ID),
			slog.String("kind", e.Kind),
			slog.Int("attempt", e.Attempt),
			slog.Int64("fence", e.Fence),
			slog.Duration("wait", e.Wait),
			slog.Duration("run_time", e.RunTime),
		)
	}
	if e.Err != nil {
		attrs = append(attrs, slog.String("error", reasonOf(e.Err)))
	}
	if !e.NextRun.IsZero() {
		attrs = append(attrs, slog.Time("next_run", e.NextRun))
	}
	return attrs
}

// loggerOr returns log, or a logger that writes nothing where log is nil. The global logger is never used. A handler that
// calls runtime.Goexit ends the process, as a hook does.
func loggerOr(log *slog.Logger) *slog.Logger { return callback.Logger(log) }
