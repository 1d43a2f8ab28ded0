package cases

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	childVariable  = "LEASEQ_CASE_CHILD"
	configVariable = "LEASEQ_CASE_CONFIG"
)

// childMains are the programs that a test can start as processes of its own, by name. Register one beside the test
// that uses it: var _ = child("s02-worker", func(config []byte) int { … }).
var childMains = map[string]func(config []byte) int{}

func child(name string, main func(config []byte) int) struct{} {
	childMains[name] = main
	return struct{}{}
}

func runChild(name string) int {
	main, ok := childMains[name]
	if !ok {
		fmt.Fprintln(os.Stderr, "no child program is called", name)
		return 2
	}
	go func() { // a child does not outlive its parent: its standard input then ends
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(3)
	}()
	return main([]byte(os.Getenv(configVariable)))
}

// process is a running child.
type process struct {
	*exec.Cmd
	Lines chan string // of its standard output
	done  chan struct{}
	err   error
}

// startChild starts a registered program with a JSON configuration. It is killed when the test ends.
func startChild(t testing.TB, name string, config any) *process {
	t.Helper()
	return startChildBy(t, name, config, (*exec.Cmd).Start)
}

// startChildBy has the process started by start.
func startChildBy(t testing.TB, name string, config any, start func(cmd *exec.Cmd) error) *process {
	t.Helper()
	text, err := json.Marshal(config)
	require.NoError(t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"="+name, configVariable+"="+string(text),
		"GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE")) // else the race detector's runtime sleeps for a second at every exit
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, start(cmd))
	p := &process{Cmd: cmd, Lines: make(chan string, 10_000), done: make(chan struct{})}
	go func() {
		defer close(p.done)
		defer close(p.Lines)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			select {
			case p.Lines <- lines.Text():
			default: // nobody reads them
			}
		}
		p.err = cmd.Wait()
	}()
	t.Cleanup(func() {
		p.Kill()
		_ = in.Close()
	})
	return p
}

// Kill ends the child with SIGKILL and waits for its end.
func (p *process) Kill() {
	_ = p.Process.Kill()
	<-p.done
}

// Wait waits for the child's own end and returns its exit code; -1 where a signal ended it.
func (p *process) Wait() int {
	<-p.done
	return p.ProcessState.ExitCode()
}
