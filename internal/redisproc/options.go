package redisproc

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// Options says which program is started, and how. A nil *Options means all defaults.
type Options struct {
	// Path is the redis-server program, a path or a name to be found on PATH. Default: the redis-server of [Find].
	Path string

	// Dir is the directory where the server works: its data and its log (redis-server.log). A given one is made if it
	// is missing and never removed. Default: a new one under [os.TempDir], removed by Stop.
	Dir string

	// AppendOnly switches the append-only file on. Default: off, and there are no RDB snapshots either, so that such a
	// server forgets everything when it ends.
	AppendOnly bool

	// AppendFsync is always, everysec or no. It needs AppendOnly. Default: the server's own, everysec.
	AppendFsync string

	// Args are more settings as on the command line of redis-server, such as "--maxmemory", "20mb". A password is given
	// as "--requirepass", "<password>". Settings that this package makes itself are refused. Default: none.
	Args []string

	// TLS makes the server listen for TLS too, on a second port: see [Server.TLSAddr]. Default: nil, no TLS.
	TLS *TLS

	// Sentinel, if it is not nil, makes a Sentinel instead of a server: the lines of its configuration without the first
	// word, such as "monitor main 127.0.0.1 12345 2". It keeps what it finds out in its directory, over restarts too.
	Sentinel []string

	// Env is added to the environment of this process, in the form "NAME=value". Default: nothing is added.
	Env []string
}

// TLS names the PEM files of a server with TLS. They are read when the server starts.
type TLS struct {
	CertFile, KeyFile string // its certificate, which it also shows to servers that it connects to
	CAFile            string // the authorities whose certificates it accepts

	// Clients is no, optional or yes: whether a client needs a certificate. Default: the server's own, yes.
	Clients string
}

// ours are the settings that Args may not hold, since this package makes them.
var ours = []string{
	"port", "bind", "dir", "daemonize", "appendonly", "appendfsync",
	"tls-port", "tls-cert-file", "tls-key-file", "tls-ca-cert-file", "tls-auth-clients", "sentinel",
}

// settled copies the options, fills in the defaults and reports every problem. It makes no directory.
func (o *Options) settled() (Options, error) {
	var s Options
	if o != nil {
		s = *o
		s.Args = append([]string(nil), o.Args...)
		s.Env = append([]string(nil), o.Env...)
		if o.TLS != nil {
			files := *o.TLS
			s.TLS = &files
		}
		if o.Sentinel != nil {
			s.Sentinel = append([]string{}, o.Sentinel...)
		}
	}
	var problems []error
	var err error
	if s.Path == "" {
		s.Path, err = Find()
	} else if s.Path, err = exec.LookPath(s.Path); err != nil {
		err = fmt.Errorf("Path: %w", err)
	}
	problems = append(problems, err)

	switch s.AppendFsync {
	case "":
	case "always", "everysec", "no":
		if !s.AppendOnly {
			problems = append(problems, fmt.Errorf("AppendFsync %q does nothing without AppendOnly: set both or neither", s.AppendFsync))
		}
	default:
		problems = append(problems, fmt.Errorf("AppendFsync %q: want always, everysec or no", s.AppendFsync))
	}
	if s.Dir != "" {
		// The server changes into its directory, so that a relative path would mean two things.
		if s.Dir, err = filepath.Abs(s.Dir); err != nil {
			problems = append(problems, fmt.Errorf("Dir: %w", err))
		}
	}
	problems = append(problems, s.checkKind())
	for _, name := range ours {
		if _, found := s.setting(name); found {
			problems = append(problems, fmt.Errorf("Args hold --%s, which this package sets itself: use the options and Addr", name))
		}
	}
	for _, pair := range s.Env {
		if !strings.Contains(pair, "=") {
			problems = append(problems, fmt.Errorf("Env holds %q: want NAME=value", pair))
		}
	}
	return s, errors.Join(problems...)
}

// checkKind checks what makes the server something else than a plain one.
func (o *Options) checkKind() error {
	var problems []error
	if o.Sentinel != nil && o.AppendOnly {
		problems = append(problems, errors.New("AppendOnly is for servers, and Sentinel makes none: set one of them"))
	}
	for _, row := range o.Sentinel {
		if strings.TrimSpace(row) == "" || strings.ContainsAny(row, "\r\n") {
			problems = append(problems, fmt.Errorf("Sentinel holds %q: want lines like monitor main 127.0.0.1 12345 2", row))
		}
	}
	if o.TLS == nil {
		return errors.Join(problems...)
	}
	for _, file := range []struct{ name, path string }{
		{"CertFile", o.TLS.CertFile}, {"KeyFile", o.TLS.KeyFile}, {"CAFile", o.TLS.CAFile},
	} {
		if !filepath.IsAbs(file.path) {
			problems = append(problems, fmt.Errorf("TLS.%s %q: want an absolute path, since the server changes into its directory", file.name, file.path))
		}
	}
	switch o.TLS.Clients {
	case "", "no", "optional", "yes":
	default:
		problems = append(problems, fmt.Errorf("TLS.Clients %q: want no, optional or yes", o.TLS.Clients))
	}
	return errors.Join(problems...)
}

// setting looks for "--name" in Args, however the name is capitalised, and returns the argument that follows it.
func (o *Options) setting(name string) (value string, found bool) {
	for i, arg := range o.Args {
		if !strings.HasPrefix(arg, "--") || !strings.EqualFold(arg[2:], name) {
			continue
		}
		if i+1 < len(o.Args) {
			value = o.Args[i+1]
		}
		return value, true
	}
	return "", false
}

// Find returns the path of the redis-server program on PATH. The error says that there is none, and matches
// [exec.ErrNotFound] then.
func Find() (path string, err error) {
	path, err = exec.LookPath("redis-server")
	if err != nil {
		return "", fmt.Errorf("no redis-server on PATH (install Redis 6.2 or newer, or name the program): %w", err)
	}
	return path, nil
}
