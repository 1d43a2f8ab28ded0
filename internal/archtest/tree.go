package archtest

import (
	"io/fs"
	"path"
	"slices"
	"strings"
)

// Files returns the paths of the tree's files with one of the endings (".go"), but for what begins with a dot or an
// underscore, and what fuzzing keeps in folders called testdata.
func Files(tree fs.FS, endings ...string) ([]string, error) {
	var files []string
	err := fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := path.Base(name)
		if entry.IsDir() {
			if name != "." && (strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") || strings.HasSuffix("/"+name, "/testdata/fuzz")) {
				return fs.SkipDir
			}
			return nil
		}
		if slices.Contains(endings, path.Ext(name)) {
			files = append(files, name)
		}
		return nil
	})
	return files, err
}

func isTest(file string) bool { return strings.HasSuffix(file, "_test.go") }
