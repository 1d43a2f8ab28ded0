package redistest

import (
	"fmt"
	"strings"
	"testing"
)

// A recorder is a test that a test judges: it keeps what is reported and runs the cleanups when it is told to.
type recorder struct {
	testing.TB
	name     string
	errors   []string
	cleanups []func()
}

func (r *recorder) Name() string     { return r.name }
func (r *recorder) Helper()          {}
func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Errorf(format string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}

// end runs the cleanups, last first, and returns what was reported in all.
func (r *recorder) end() string {
	for i := len(r.cleanups) - 1; i >= 0; i-- {
		r.cleanups[i]()
	}
	r.cleanups = nil
	return strings.Join(r.errors, "\n")
}
