package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// keyBuilder is the only folder that builds keys.
const keyBuilder = "internal/keys"

// keyReaders may hold parts of keys without building any.
var keyReaders = map[string]string{
	"internal/archtest":  "looks for parts of keys",
	"internal/redistest": "looks for keys that a test left behind",
}

// keyParts are what only a string that builds a key holds: the segment of the version, and a hash tag to be filled in.
var keyParts = []string{":v1:", "{%s}", "{%s#"}

// CheckKeyNames returns every string in Go code, tests, internal/keys and the readers excepted, that looks like a part of a key.
func CheckKeyNames(tree fs.FS) ([]string, error) {
	files, err := Files(tree, ".go")
	if err != nil {
		return nil, err
	}
	var bad []string
	for _, name := range files {
		if isTest(name) || inside(name, keyBuilder) || keyReaders[path.Dir(name)] != "" {
			continue
		}
		text, err := fs.ReadFile(tree, name)
		if err != nil {
			return nil, err
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, text, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		ast.Inspect(file, func(node ast.Node) bool {
			if lit, ok := node.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				if value, err := strconv.Unquote(lit.Value); err == nil && isKeyPart(value) {
					bad = append(bad, fmt.Sprintf("%s: %s looks like a part of a key: only %s builds keys", set.Position(lit.Pos()), lit.Value, keyBuilder))
				}
			}
			return true
		})
	}
	return bad, nil
}

func isKeyPart(value string) bool {
	for _, part := range keyParts {
		if strings.Contains(value, part) {
			return true
		}
	}
	return strings.HasSuffix(value, ":{") || strings.HasPrefix(value, "}:") // halves of a hash tag
}
