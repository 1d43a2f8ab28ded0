package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
)

// AppOptions are the surroundings of an App; nil is valid.
type AppOptions struct {
	Out, Err  io.Writer                        // default: the process' own
	LookupEnv func(name string) (string, bool) // default: os.LookupEnv
}

// An App is one run of the program, so that a test can have it inside of its process: ParseFlags, then Run, then Close.
type App struct {
	out, err  io.Writer
	lookupEnv func(string) (string, bool)

	root    *cobra.Command
	command *cobra.Command              // that was parsed
	action  func(context.Context) error // what Run does; nil: nothing is left to do
	clients []redis.UniversalClient
}

// NewApp builds the commands. It does nothing else.
func NewApp(o *AppOptions) *App {
	a := &App{out: os.Stdout, err: os.Stderr, lookupEnv: os.LookupEnv}
	if o != nil {
		if o.Out != nil {
			a.out = o.Out
		}
		if o.Err != nil {
			a.err = o.Err
		}
		if o.LookupEnv != nil {
			a.lookupEnv = o.LookupEnv
		}
	}
	a.root = newRoot(a)
	a.root.SetOut(a.out)
	a.root.SetErr(a.err)
	a.postpone(a.root)
	addTwins(a.root)
	return a
}

// postpone splits what a command does: reading flags, arguments and environment, and checking them (PreRunE), is done
// by ParseFlags; the work itself (RunE) by Run.
func (a *App) postpone(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		a.postpone(sub)
	}
	if cmd.RunE == nil {
		return
	}
	check, work := cmd.PreRunE, cmd.RunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if err := applyTwins(cmd, a.lookupEnv); err != nil {
			return err
		}
		if err := checkURL(cmd.Flags()); err != nil || check == nil {
			return err
		}
		return check(cmd, args)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		a.action = func(ctx context.Context) error {
			cmd.SetContext(ctx)
			return work(cmd, args)
		}
		return nil
	}
}

// ParseFlags reads and checks the command line (without the program's name) and the environment. Help is printed here.
// It contacts nobody. Its errors are [*ExitError], most with the code for a wrong usage.
func (a *App) ParseFlags(args []string) error {
	a.root.SetArgs(append([]string{}, args...)) // nil would mean those of the process
	cmd, err := a.root.ExecuteC()
	a.command = cmd
	var exit *ExitError
	if err == nil || errors.As(err, &exit) {
		return err
	}
	return &ExitError{Code: exitUsage, Err: fmt.Errorf("%w\nRun '%s --help' for usage.", err, cmd.CommandPath())}
}

// Run does what ParseFlags was asked for, until it is done or ctx ends.
func (a *App) Run(ctx context.Context) error {
	if a.action == nil {
		return nil
	}
	return a.action(ctx)
}

// Close closes the Redis clients.
func (a *App) Close() error {
	var errs []error
	for _, rdb := range a.clients {
		errs = append(errs, rdb.Close())
	}
	a.clients = nil
	return errors.Join(errs...)
}

// open makes a client that Close closes. A quick one is for a command that does not log: what is not good about the
// endpoint is then told on standard error.
func (a *App) open(e *endpoint, quick bool) redis.UniversalClient {
	if quick {
		for _, warning := range e.warnings {
			fmt.Fprintf(a.err, "reaper: warning: %s\n", warning)
		}
	}
	rdb := e.open(quick)
	a.clients = append(a.clients, rdb)
	return rdb
}

// Main is all of it: it tells errors on standard error and returns the exit code.
func (a *App) Main(ctx context.Context, args []string) int {
	silent := false
	err := a.ParseFlags(args)
	if err == nil {
		silent = a.command != a.root && a.command.SilenceErrors // such a command tells its errors itself
		err = a.Run(ctx)
	}
	if closing := a.Close(); err == nil {
		err = closing
	}
	if err != nil && !silent {
		fmt.Fprintf(a.err, "reaper: %s\n", redact(err.Error()))
	}
	return exitCode(err)
}
