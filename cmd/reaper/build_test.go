package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
)

// builds is where the program is while the tests run.
var builds = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "leaseq-reaper-") })

// build makes the program once for all tests, and says where it is. No test writes one of its own: a process that another
// test starts meanwhile would have the file open for writing, and the system refuses to run such a file.
var build = sync.OnceValues(func() (path string, err error) {
	dir, err := builds()
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, "reaper")
	if out, err := exec.Command("go", "build", "-o", path, ".").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return path, nil
})

// unbuild removes what build has made.
func unbuild() {
	if dir, err := builds(); err == nil {
		_ = os.RemoveAll(dir) // a folder for temporary files
	}
}
