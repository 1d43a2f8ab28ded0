package callback

import (
	"context"
	"log/slog"
)

// Logger returns a logger that writes as log does, with a handler that is called by [Run]; nil becomes one that writes
// nothing. Lines are logged on goroutines that must go on, and a handler is a user's code.
func Logger(log *slog.Logger) *slog.Logger {
	if log == nil {
		return slog.New(slog.DiscardHandler)
	}
	if _, already := log.Handler().(handler); already {
		return log
	}
	return slog.New(handler{log.Handler()})
}

type handler struct{ slog.Handler }

const handlerName = "the Logger's handler"

func (h handler) Enabled(ctx context.Context, level slog.Level) (enabled bool) {
	Run(handlerName, func() { enabled = h.Handler.Enabled(ctx, level) })
	return enabled
}

func (h handler) Handle(ctx context.Context, record slog.Record) (err error) {
	Run(handlerName, func() { err = h.Handler.Handle(ctx, record) })
	return err
}

func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return handler{h.Handler.WithAttrs(attrs)}
}

func (h handler) WithGroup(name string) slog.Handler { return handler{h.Handler.WithGroup(name)} }
