// Command skipcheck runs go test and fails where a test was skipped that the list of allowed skips does not name.
//
//	skipcheck [-list .ci/skips.txt] [-dir folder] [-each] [-- go test's arguments]
//
// It prints the closing line of each package as go test does, the output of what failed, each skipped test with its
// reason, and a last line of sums. Its exit code is 1 where a test or a build failed, a skip is not allowed, or no test
// ran at all, and 2 where it could not do its work.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("skipcheck", flag.ContinueOnError)
	flags.SetOutput(stderr)
	list := flags.String("list", ".ci/skips.txt", "the allowed skips")
	dir := flags.String("dir", "", "run go test in this folder")
	each := flags.Bool("each", false, "print the result of each test, not of packages alone")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	allowed, err := readList(*list, os.Getenv("CI") == "true")
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "skipcheck:", err)
		return 2
	}
	report := newReport(stdout, allowed, *each)
	failed, err := goTest(ctx, *dir, flags.Args(), report, stderr)
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "skipcheck:", err)
		return 2
	}
	if err := report.close(); err != nil || failed {
		if err != nil {
			_, _ = fmt.Fprintln(stderr, err)
		}
		return 1
	}
	return 0
}

// goTest feeds the events of one go test to the report. failed says that go test itself did not end well.
func goTest(ctx context.Context, dir string, args []string, report *report, stderr io.Writer) (failed bool, err error) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json"}, args...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Dir, cmd.Stderr = dir, stderr
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.StdoutPipe()
	if err != nil {
		return false, err
	}
	if err := cmd.Start(); err != nil {
		return false, err
	}
	readErr := report.read(out)
	if readErr != nil {
		_, _ = io.Copy(io.Discard, out)
	}
	err = cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return true, readErr
	}
	return false, errors.Join(readErr, err)
}
