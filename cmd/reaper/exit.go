package main

import "errors"

// Exit codes; see the help of the root command. A second signal ends the process with 128 + its number.
const (
	exitOK      = 0
	exitFailure = 1 // the command failed, and said why
	exitUsage   = 2 // a wrong flag, argument or environment variable
	exitRedis   = 3 // no access to Redis: it cannot be reached, or refuses TLS, credentials, database or a command
)

// An ExitError is an error with an exit code of its own.
type ExitError struct {
	Code int
	Err  error
}

func (e *ExitError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *ExitError) Unwrap() error { return e.Err }

// exitCode is what the process ends with after err.
func exitCode(err error) int {
	var exit *ExitError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &exit):
		return exit.Code
	}
	return exitFailure
}
