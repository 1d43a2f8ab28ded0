package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/leaseq/leaseq/internal/keys"
)

// parse checks the flags and the files that they name, and reports every problem. It contacts nobody.
func (f *connectionFlags) parse() (*endpoint, error) {
	problems := []error{keys.ValidateName("--prefix", f.prefix)}
	e, err := parseURL(f.redis)
	if err != nil {
		problems = append(problems, fmt.Errorf("--redis: %w", err))
		e = &endpoint{} // the files are looked at all the same
	}
	e.prefix = f.prefix
	problems = append(problems, f.useTLS(e), f.useLogin(e), f.useSentinelLogin(e))
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	return e, nil
}

// unknown is true for an endpoint whose URL was refused.
func (e *endpoint) unknown() bool { return e.scheme == "" }

func (f *connectionFlags) useTLS(e *endpoint) error {
	given := f.tls.given()
	if len(given) == 0 {
		return nil
	}
	var problems []error
	switch e.scheme {
	case "redis":
		problems = append(problems, fmt.Errorf("%s: for a server with TLS, but the URL begins with redis://, which is without: "+
			"begin it with rediss:// if the server speaks TLS, or leave this out", strings.Join(given, ", ")))
	case "unix":
		problems = append(problems, fmt.Errorf("%s: there is no TLS on a unix socket: leave this out", strings.Join(given, ", ")))
	}
	e.tls = f.tls
	config, err := f.tls.config()
	if err == nil && config.GetClientCertificate != nil {
		pair, _ := config.GetClientCertificate(nil)
		if end := pair.Leaf.NotAfter; time.Now().After(end) {
			e.warn(fmt.Sprintf("--tls-cert %s has expired at %s", f.tls.cert, end.Format(time.RFC3339)))
		}
		e.warn(openToAll("--tls-key", f.tls.key))
	}
	return errors.Join(append(problems, err)...)
}

func (e *endpoint) warn(text string) {
	if text != "" {
		e.warnings = append(e.warnings, text)
	}
}

// useLogin takes user and password for the servers that have the queues.
func (f *connectionFlags) useLogin(e *endpoint) error {
	var problems []error
	file, err := e.usePasswordFile("--"+passwordFlag, f.passwordFile)
	problems = append(problems, err)
	if e.unknown() {
		return errors.Join(problems...)
	}
	e.passwordFile = file
	user, password := e.login()
	return errors.Join(append(problems, combine(loginNames{
		user: "--user", file: "--" + passwordFlag, inURL: "the URL",
	}, user, password, f.user, f.passwordFile))...)
}

// useSentinelLogin takes user and password for the Sentinels themselves.
func (f *connectionFlags) useSentinelLogin(e *endpoint) error {
	var problems []error
	file, err := e.usePasswordFile("--"+sentinelPasswordFlag, f.sentinelPasswordFile)
	problems = append(problems, err)
	switch {
	case e.unknown():
		return errors.Join(problems...)
	case e.failover == nil && f.sentinelUser+f.sentinelPasswordFile != "":
		return errors.Join(append(problems, errors.New("--sentinel-user, --sentinel-password-file: for Sentinel, but the URL names none: "+
			"add ?master_name=…, or use --user and --password-file"))...)
	case e.failover == nil:
		return nil
	}
	e.sentinelsPassword = file
	return errors.Join(append(problems, combine(loginNames{
		user: "--sentinel-user", file: "--" + sentinelPasswordFlag, inURL: "the URL before the first host",
	}, &e.failover.SentinelUsername, &e.failover.SentinelPassword, f.sentinelUser, f.sentinelPasswordFile))...)
}

// usePasswordFile looks whether a file has a password; without a path it is nil.
func (e *endpoint) usePasswordFile(flag, path string) (*passwordFile, error) {
	if path == "" {
		return nil, nil
	}
	p := &passwordFile{flag: flag, path: path}
	if _, err := p.read(); err != nil {
		return nil, err
	}
	e.warn(openToAll(flag, path))
	return p, nil
}

// loginNames say where parts of a login come from.
type loginNames struct{ user, file, inURL string }

// combine puts what flags say beside what the URL says. Nothing may be said twice, and a user needs a password: without
// one the client library would leave it out and connect as the default user.
func combine(from loginNames, user, password *string, userFlag, fileFlag string) error {
	var problems []error
	if *user != "" && userFlag != "" {
		problems = append(problems, fmt.Errorf("%s: there is a user in %s, too: want one of them", from.user, from.inURL))
	}
	if *password != "" && fileFlag != "" {
		problems = append(problems, fmt.Errorf("%s: there is a password in %s, too: want one of them", from.file, from.inURL))
	}
	if *user+userFlag != "" && *password+fileFlag == "" {
		problems = append(problems, fmt.Errorf("a user without a password (in a URL a password stands behind a colon, as in "+
			"redis://user:password@host): add one to %s, or %s", from.inURL, from.file))
	}
	if userFlag != "" {
		*user = userFlag
	}
	return errors.Join(problems...)
}

func sortedKeys(m map[string]bool) []string { return slices.Sorted(maps.Keys(m)) }
