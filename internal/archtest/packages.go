package archtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// Module is the path of the module that is checked.
const Module = "github.com/leaseq/leaseq"

// A Package is what go list says of one package.
type Package struct {
	ImportPath   string
	Dir          string
	Standard     bool
	GoFiles      []string
	Imports      []string // of the files that are built
	TestImports  []string
	XTestImports []string
	Module       *struct{ Path string }
}

// Own reports whether the package is of this module.
func (p *Package) Own() bool { return own(p.ImportPath) }

func own(path string) bool { return path == Module || strings.HasPrefix(path, Module+"/") }

// short is an import path without the module's own.
func short(path string) string { return strings.TrimPrefix(path, Module+"/") }

// inside reports whether path is the package or folder dir, or one below it.
func inside(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

// List runs go list in root for an operating system ("" is this one) and returns the packages that match. With deps it
// returns everything that they link, too.
func List(root, goos string, deps bool, patterns ...string) ([]*Package, error) {
	args := []string{"list", "-json=ImportPath,Dir,Standard,GoFiles,Imports,TestImports,XTestImports,Module"}
	if deps {
		args = append(args, "-deps")
	}
	cmd := exec.Command("go", append(args, patterns...)...)
	cmd.Dir = root
	if goos != "" {
		cmd.Env = append(os.Environ(), "GOOS="+goos, "CGO_ENABLED=0")
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w\n%s", strings.Join(cmd.Args[1:], " "), err, &stderr)
	}
	var all []*Package
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		p := new(Package)
		err := decoder.Decode(p)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("the answer of go list: %w", err)
		}
		all = append(all, p)
	}
}
