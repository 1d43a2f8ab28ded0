package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// maxPassword is the most that a password file may hold; a token of a cloud provider has some thousand bytes.
const maxPassword = 64 << 10

// A passwordFile holds a password that may be changed while the program runs.
type passwordFile struct{ flag, path string }

// read returns what the file holds now, without the end of the line. Its errors never hold what may be a password, the
// file's name included if it looks as if somebody had given the password itself.
func (p *passwordFile) read() (string, error) {
	f, err := os.Open(p.path)
	if err != nil {
		return "", p.failed(cause(err))
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", p.failed(cause(err))
	}
	if !info.Mode().IsRegular() {
		return "", p.failed(errors.New("want a regular file, since it is read again for each new connection"))
	}
	text, err := io.ReadAll(io.LimitReader(f, maxPassword+1))
	if err != nil {
		return "", p.failed(cause(err))
	}
	password := strings.TrimRight(string(text), "\r\n")
	switch {
	case len(text) > maxPassword:
		return "", p.failed(fmt.Errorf("it holds more than %d bytes, which is no password", maxPassword))
	case password == "":
		return "", p.failed(errors.New("it is empty"))
	case strings.ContainsAny(password, "\r\n"):
		return "", p.failed(errors.New("it holds more than one line, which is no password"))
	}
	return password, nil
}

// failed names the file if it, or at least its folder, is there: else the name may be the password.
func (p *passwordFile) failed(err error) error {
	e := &fileError{flag: p.flag, err: err}
	folder := filepath.Dir(p.path)
	_, noFile := os.Lstat(p.path)
	_, noFolder := os.Lstat(folder)
	if noFile == nil || noFolder == nil && folder != "." && folder != string(filepath.Separator) {
		e.path = p.path
	} else {
		e.err = fmt.Errorf("%w (want the path of a file; this one is not shown, in case it is the password itself)", err)
	}
	return e
}

// openToAll says that everybody on this machine can read a file that should be secret; "" if not, or if that cannot be
// told.
func openToAll(flag, path string) string {
	info, err := os.Stat(path)
	if runtime.GOOS == "windows" || err != nil || info.Mode().Perm()&0o004 == 0 {
		return ""
	}
	return fmt.Sprintf("%s %s can be read by everybody on this machine (mode %04o): want 0600, or 0440 and a group", flag, path, info.Mode().Perm())
}
