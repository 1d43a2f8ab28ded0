// Package oldversion builds programs against earlier commits of this module, for tests of what happens where an older
// version works beside today's, or has left a queue behind.
//
// The programs are sources that both versions compile: they use only what the earlier commits have.
package oldversion

import (
	"archive/tar"
	"bytes"
	_ "embed"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// Commits whose code stands for what runs, or has run, somewhere.
const (
	// Today is the working tree.
	Today = ""
	// WithRecord is an early version that has package chaos/record.
	WithRecord = "728bff61a207ce99628b4a5399ab5ac9ce51b138"
	// First is the first one that had the whole public interface of queues.
	First = "a3f8728220a26b80a9f846d31c7f6dafc9f3dbc6"
	// Second came after middleware, limits for headers and shared enqueues.
	Second = "636079f1f3ef0a305919139b4a5a65217d069ff2"
)

// SkipReason is why a test is skipped that needs an earlier commit.
const SkipReason = "needs git and the history of this module: a source archive and a shallow clone have none"

// Worker is a program that works on a queue and records its history. It needs a commit from [WithRecord] on; the
// comment at its head says what it is told in its environment.
//
//go:embed worker/main.go
var Worker string

// Filler is a program that leaves a queue behind with jobs in every place. It compiles against every commit above.
//
//go:embed filler/main.go
var Filler string

// Build builds the source of a main package, which may import the public packages of this module as they were at the
// commit, and returns the path of the program. It lies in a directory of the test. The test is skipped, with
// [SkipReason], where the commit cannot be had.
//
// The commit's files are unpacked into the user's cache directory, below leaseq/, once: Go's build cache goes by the
// directory of a package. The first build of a commit takes some ten seconds, later ones one.
func Build(t testing.TB, commit, mainGo string) (binary string) {
	t.Helper()
	root := moduleRoot(t)
	if commit != Today {
		root = export(t, root, commit)
	}
	dir := t.TempDir()
	source := filepath.Join(dir, "main.go")
	if err := os.WriteFile(source, []byte(mainGo), 0o600); err != nil {
		t.Fatalf("oldversion: %v", err)
	}
	binary = filepath.Join(dir, "program")
	if runtime.GOOS == "windows" {
		binary += ".exe"
	}
	build := exec.Command("go", "build", "-o", binary, source)
	build.Dir = root
	build.Env = append(os.Environ(), "GOWORK=off")
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("oldversion: build against %.12q: %v\n%s", commit, err, said)
	}
	return binary
}

func moduleRoot(t testing.TB) string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOMOD").Output()
	file := strings.TrimSpace(string(out))
	if err != nil || filepath.Base(file) != "go.mod" {
		t.Fatalf("oldversion: the module's directory is not known: go env GOMOD says %q, %v", file, err)
	}
	return filepath.Dir(file)
}

// export unpacks the tree of a commit, unless that was done before, and returns its directory.
func export(t testing.TB, root, commit string) string {
	t.Helper()
	home, err := os.UserCacheDir()
	if err != nil {
		home = t.TempDir()
	}
	home = filepath.Join(home, "leaseq")
	tree := filepath.Join(home, commit)
	if _, err := os.Stat(filepath.Join(tree, "go.mod")); err == nil {
		return tree
	}
	if err := os.MkdirAll(home, 0o755); err != nil {
		t.Fatalf("oldversion: %v", err)
	}
	fresh, err := os.MkdirTemp(home, "unpacking-")
	if err != nil {
		t.Fatalf("oldversion: %v", err)
	}
	defer os.RemoveAll(fresh)
	unpackCommit(t, root, commit, fresh)
	if err := os.Rename(fresh, tree); err != nil {
		if _, other := os.Stat(filepath.Join(tree, "go.mod")); other != nil { // else somebody was quicker
			t.Fatalf("oldversion: %v", err)
		}
	}
	return tree
}

func unpackCommit(t testing.TB, root, commit, dir string) {
	t.Helper()
	if said, err := exec.Command("git", "-C", root, "cat-file", "-e", commit+"^{commit}").CombinedOutput(); err != nil {
		t.Skipf("%s (%.12s: %v %s)", SkipReason, commit, err, bytes.TrimSpace(said))
	}
	archive := exec.Command("git", "-C", root, "archive", "--format=tar", commit)
	var said bytes.Buffer
	archive.Stderr = &said
	out, err := archive.StdoutPipe()
	if err == nil {
		err = archive.Start()
	}
	if err != nil {
		t.Fatalf("oldversion: git archive: %v", err)
	}
	unpacked := unpack(out, dir)
	_, _ = io.Copy(io.Discard, out) // what follows the archive's end, or an error
	if err := errors.Join(archive.Wait(), unpacked); err != nil {
		t.Fatalf("oldversion: git archive %.12s: %v\n%s", commit, err, &said)
	}
}

// unpack writes the regular files of an archive. Names that lead out of the directory are refused.
func unpack(from io.Reader, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for in := tar.NewReader(from); ; {
		head, err := in.Next()
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		case head.Typeflag == tar.TypeDir:
			err = root.MkdirAll(strings.TrimSuffix(head.Name, "/"), 0o755)
		case head.Typeflag == tar.TypeReg:
			err = write(root, head.Name, in)
		}
		if err != nil {
			return err
		}
	}
}

func write(root *os.Root, name string, from io.Reader) error {
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	file, err := root.Create(name)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, from)
	return errors.Join(err, file.Close())
}
