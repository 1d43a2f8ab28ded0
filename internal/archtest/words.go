package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

// strangers are words of other queues for things that have a word of their own here: a lease, a claim, expire, a job.
var strangers = regexp.MustCompile(`(?i)\b(visible|visibility|reserve[sd]?|reserving|recover(?:s|ed|ing)?|stalled|tasks?|messages?)\b`)

// stems are in every stranger: most texts have none, and need no closer look.
var stems = []string{"visib", "reserv", "recover", "stalled", "task", "message"}

func suspect(text string) bool {
	text = strings.ToLower(text)
	return slices.ContainsFunc(stems, func(stem string) bool { return strings.Contains(text, stem) })
}

// Spoken are strangers that stand in a file all the same, as they are written there, and why.
var Spoken = map[string]map[string]string{
	"chaos/outcome.go":         {"Recovered": fieldRecovered, "recovered": fieldRecovered},
	"cmd/reaper/chaos_help.go": {"recovered": fieldRecovered},
	"docs/reaper.md":           {"recovered": fieldRecovered},
}

const fieldRecovered = "a field of the result of a storm that scripts of those who own the product read: its name was given"

// camel finds where a word in an identifier begins.
var camel = regexp.MustCompile(`([a-z0-9])([A-Z])`)

// CheckWords returns every stranger in Markdown, in Lua, and in the comments, the strings and the exported names of Go;
// tests may say what they like.
func CheckWords(tree fs.FS) ([]string, error) {
	files, err := Files(tree, ".go", ".lua", ".md")
	if err != nil {
		return nil, err
	}
	var bad []string
	for _, name := range files {
		if isTest(name) || path.Dir(name) == "internal/archtest" {
			continue
		}
		text, err := fs.ReadFile(tree, name)
		if err != nil {
			return nil, err
		}
		if path.Ext(name) != ".go" {
			if !suspect(string(text)) {
				continue
			}
			for i, line := range strings.Split(string(text), "\n") {
				bad = append(bad, wordsIn(fmt.Sprintf("%s:%d", name, i+1), line, Spoken[name])...)
			}
			continue
		}
		found, err := wordsInGo(name, text)
		if err != nil {
			return nil, err
		}
		bad = append(bad, found...)
	}
	return bad, nil
}

func wordsIn(where, text string, spoken map[string]string) []string {
	var bad []string
	for _, word := range strangers.FindAllString(text, -1) {
		if spoken[word] != "" {
			continue
		}
		bad = append(bad, fmt.Sprintf("%s: %q has a word of its own here", where, word))
	}
	return bad
}

func wordsInGo(name string, text []byte) ([]string, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	spoken := Spoken[name]
	var bad []string
	for _, group := range file.Comments {
		for _, comment := range group.List {
			if suspect(comment.Text) {
				bad = append(bad, wordsIn(set.Position(comment.Pos()).String(), comment.Text, spoken)...)
			}
		}
	}
	theirs := map[*ast.Ident]bool{} // what stands behind a dot may be another package's name
	ast.Inspect(file, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.SelectorExpr:
			theirs[n.Sel] = true
		case *ast.BasicLit:
			if n.Kind == token.STRING && suspect(n.Value) {
				bad = append(bad, wordsIn(set.Position(n.Pos()).String(), n.Value, spoken)...)
			}
		case *ast.Ident:
			if n.IsExported() && !theirs[n] && suspect(n.Name) {
				bad = append(bad, wordsIn(set.Position(n.Pos()).String(), camel.ReplaceAllString(n.Name, "$1 $2"), spoken)...)
			}
		}
		return true
	})
	return bad, nil
}
