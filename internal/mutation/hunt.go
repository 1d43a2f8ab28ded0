package mutation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// A Hunt is what looks for a missing safeguard: a part of the suite, compiled and run in a process of its own. One of
// Test and Storm is set.
type Hunt struct {
	Package string // below the root of the module
	Test    string // of the package's tests, the expression for -test.run
	Storm   string // of those in the storm command
	Lists   bool   // Test draws lists with rapid
}

// General reports whether the hunt was not written for one safeguard: what it does is up to chance, and all is judged.
func (h Hunt) General() bool { return h.Lists || h.Storm != "" }

var (
	// Calls runs random lists of calls on the real scripts and on the model, and compares all that is stored after each call.
	Calls = Hunt{Package: "lease", Test: "^TestAnyOrderOfCallsLeavesWhatTheModelSays$/^redis$", Lists: true}

	// Deeds does the same random deeds in six ways, some of which lose replies, and compares the ends.
	Deeds = Hunt{Package: "lease", Test: "^TestTheSameDeedsEndInTheSameState$", Lists: true}
)

// Storm has worker processes work and faults happen, and the history judged.
func Storm(name string) Hunt { return Hunt{Package: "internal/mutation/storm", Storm: name} }

// Named is a test that was written for the safeguard.
func Named(pkg, test string) Hunt { return Hunt{Package: pkg, Test: "^" + test + "$"} }

// Bounds of building and of one hunt.
const (
	building = 5 * time.Minute
	hunting  = 90 * time.Second
)

// A Found is what a hunt came to.
type Found struct {
	Caught bool
	By     string        // the test, or the checks
	After  string        // how many operations
	Took   time.Duration // without the compiler's time
	Output string
}

// Run compiles a hunt with an overlay ("": the product as it is) and runs it. An error says that it came to no end that
// tells anything.
func (h Hunt) Run(ctx context.Context, root, dir, overlay string) (*Found, error) {
	binary, err := h.build(ctx, root, dir, overlay)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, hunting)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, h.args()...)
	cmd.Dir = filepath.Join(root, filepath.FromSlash(h.Package))
	cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	cmd.WaitDelay = 5 * time.Second
	var out, report bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &report
	began := time.Now()
	err = cmd.Run()
	f := &Found{Took: time.Since(began), Output: report.String() + out.String()}
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return f, fmt.Errorf("no end within %v: %w", hunting, ctx.Err())
	case h.Storm != "" && err == nil:
		return f, f.readStorm(out.Bytes())
	case h.Storm != "" || err != nil && !errors.As(err, &exit):
		return f, err
	}
	return f, f.readTests(err == nil)
}

// build makes the hunt's program.
func (h Hunt) build(ctx context.Context, root, dir, overlay string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, building)
	defer cancel()
	binary := filepath.Join(dir, strings.ReplaceAll(h.Package, "/", "-")+".exe")
	args := []string{"build"}
	if h.Storm == "" {
		args = []string{"test", "-c", "-vet=off"}
	}
	args = append(args, "-ldflags=-s -w", "-o", binary)
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "./"+h.Package)...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s does not compile: %w\n%s", h.Package, err, out)
	}
	return binary, nil
}

// args are those of the hunt's program: the same lists, faults and traffic each time.
func (h Hunt) args() []string {
	if h.Storm != "" {
		return []string{"-storm", h.Storm, "-seed", "1"}
	}
	args := []string{"-test.v", "-test.run", h.Test, "-test.timeout", hunting.String()}
	if h.Lists {
		args = append(args, "-rapid.seed=1", "-rapid.checks=300", "-rapid.shrinktime=4s", "-rapid.nofailfile")
	}
	return args
}
