package main

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/pflag"
)

// logFlags are the flags of every command that logs.
type logFlags struct{ level, format string }

func (f *logFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.level, "log-level", "info", "least `level` that is logged: debug, info, warn or error")
	flags.StringVar(&f.format, "log-format", "text", "`format` of the log on standard error: text or json")
}

var logLevels = map[string]slog.Level{
	"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError,
}

func (f *logFlags) logger(w io.Writer) (*slog.Logger, error) {
	level, ok := logLevels[f.level]
	if !ok {
		return nil, fmt.Errorf("--log-level %q: want debug, info, warn or error", f.level)
	}
	o := &slog.HandlerOptions{Level: level}
	switch f.format {
	case "text":
		return slog.New(slog.NewTextHandler(w, o)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, o)), nil
	}
	return nil, fmt.Errorf("--log-format %q: want text or json", f.format)
}
