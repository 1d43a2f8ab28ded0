package redisproc

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// logName is the file in the server's directory that takes what it prints.
const logName = "redis-server.log"

// A process is one run of the program. done is closed when it has ended and has been waited for.
type process struct {
	cmd  *exec.Cmd
	done chan struct{}
}

// sentinelFile is the configuration of a Sentinel in its directory, which it rewrites by itself.
const sentinelFile = "sentinel.conf"

// writeSentinel puts the configuration of a Sentinel into its directory, before its first start.
func writeSentinel(o *Options) error {
	if o.Sentinel == nil {
		return nil
	}
	var text strings.Builder
	for _, row := range o.Sentinel {
		fmt.Fprintf(&text, "sentinel %s\n", row)
	}
	return os.WriteFile(filepath.Join(o.Dir, sentinelFile), []byte(text.String()), 0o600)
}

// arguments returns the command line for a run on its ports. Options.Args come last, so that they win.
func arguments(o *Options, port, tlsPort int) []string {
	var args []string
	if o.Sentinel != nil {
		args = append(args, filepath.Join(o.Dir, sentinelFile), "--sentinel")
	}
	args = append(args,
		"--bind", "127.0.0.1",
		"--port", strconv.Itoa(port),
		"--dir", o.Dir,
		"--daemonize", "no",
	)
	if o.Sentinel == nil {
		args = append(args, "--save", "", "--appendonly", yesNo(o.AppendOnly))
	}
	if o.AppendFsync != "" {
		args = append(args, "--appendfsync", o.AppendFsync)
	}
	if o.TLS != nil {
		args = append(args, "--tls-port", strconv.Itoa(tlsPort),
			"--tls-cert-file", o.TLS.CertFile, "--tls-key-file", o.TLS.KeyFile, "--tls-ca-cert-file", o.TLS.CAFile)
		if o.TLS.Clients != "" {
			args = append(args, "--tls-auth-clients", o.TLS.Clients)
		}
	}
	return append(args, o.Args...)
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// launch starts the program. It does not wait until the server answers.
//
// The goroutine that starts the process also waits for it, and keeps its thread until then. On Linux the kernel sends
// the signal for the death of a parent when the *thread* that forked ends, so this thread must last as long as the
// server. The goroutine ends with the server, and the thread goes back to the runtime.
func launch(o *Options, port, tlsPort int) (*process, error) {
	log, err := os.OpenFile(filepath.Join(o.Dir, logName), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(o.Path, arguments(o, port, tlsPort)...)
	cmd.Dir = o.Dir
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), o.Env...)
	cmd.SysProcAttr = attributes()

	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer log.Close()
		if err := cmd.Start(); err != nil {
			started <- err
			return
		}
		released, err := guardOrphan(cmd.Process.Pid)
		if err != nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			started <- err
			return
		}
		started <- nil
		_ = cmd.Wait() // how it ended does not matter: the log says it
		released()
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// over says whether the process has ended.
func (p *process) over() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// kill ends the process at once and waits for it. A process that has ended is no error.
func (p *process) kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.done
	return nil
}
