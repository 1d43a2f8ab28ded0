package mutation

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// A Mutant is the product without one of its safeguards.
type Mutant struct {
	Name  string // of the safeguard
	Edits []Edit
	Hunt  Hunt // what finds out that it is missing
}

// An Edit replaces one text in a file.
type Edit struct {
	File string // below the root of the module
	Old  string // exactly as it is there, and once only
	New  string
}

// Apply returns the file's text with the edit made. It is an error if what is to be replaced is not there, or more than
// once: then the mutant no longer fits the code.
func (e Edit) Apply(root string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(e.File)))
	if err != nil {
		return nil, err
	}
	if n := strings.Count(string(text), e.Old); n != 1 {
		return nil, fmt.Errorf("%s holds %d times what is to be replaced, want once:\n%s", e.File, n, e.Old)
	}
	if e.Old == e.New {
		return nil, fmt.Errorf("an edit of %s changes nothing", e.File)
	}
	return []byte(strings.Replace(string(text), e.Old, e.New, 1)), nil
}

// Overlay writes the changed files, and the list of them for the Go tool's -overlay, into a folder of its own, and
// returns the list's path. root is absolute. Each file of a mutant has one edit.
func (m *Mutant) Overlay(root, dir string) (string, error) {
	replace := map[string]string{}
	for i, e := range m.Edits {
		text, err := e.Apply(root)
		if err != nil {
			return "", err
		}
		original := filepath.Join(root, filepath.FromSlash(e.File))
		if replace[original] != "" {
			return "", fmt.Errorf("%s has two edits", e.File)
		}
		changed := filepath.Join(dir, fmt.Sprintf("%d-%s", i, filepath.Base(e.File)))
		if err := os.WriteFile(changed, text, 0o600); err != nil {
			return "", err
		}
		replace[original] = changed
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, list, 0o600)
}
