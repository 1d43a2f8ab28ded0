package archtest

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"slices"
)

// Lines that a file, and a function from `func` to its closing brace, should not exceed.
const (
	MaxFileLines     = 400
	MaxFunctionLines = 70
)

// An Exception lets a file ("reliable/consumer.go") or a function ("reliable/consumer.go Consumer.Run") be longer.
type Exception struct {
	Lines  int
	Reason string
}

// Exceptions are those that the tree has. One that is not needed any more must go.
var Exceptions = map[string]Exception{}

// CheckBudget returns every Go file and function that is longer than it may be, and every exception that is not needed
// or gives no reason.
func CheckBudget(tree fs.FS, exceptions map[string]Exception) ([]string, error) {
	files, err := Files(tree, ".go")
	if err != nil {
		return nil, err
	}
	lengths := map[string]int{}
	for _, file := range files {
		if err := measure(tree, file, lengths); err != nil {
			return nil, err
		}
	}
	var bad []string
	for _, name := range slices.Sorted(maps.Keys(lengths)) {
		most := MaxFunctionLines
		if slices.Contains(files, name) {
			most = MaxFileLines
		}
		exception, ok := exceptions[name]
		switch lines := lengths[name]; {
		case !ok && lines > most:
			bad = append(bad, fmt.Sprintf("%s has %d lines: want at most %d", name, lines, most))
		case ok && lines <= most:
			bad = append(bad, fmt.Sprintf("%s has %d lines and needs no exception any more", name, lines))
		case ok && lines > exception.Lines:
			bad = append(bad, fmt.Sprintf("%s has %d lines: its exception is for %d", name, lines, exception.Lines))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(exceptions)) {
		if _, ok := lengths[name]; !ok {
			bad = append(bad, name+" has an exception and is not there")
		}
		if exceptions[name].Reason == "" {
			bad = append(bad, name+" has an exception without a reason")
		}
	}
	return bad, nil
}

// measure adds the lines of a file and of its functions to lengths.
func measure(tree fs.FS, name string, lengths map[string]int) error {
	text, err := fs.ReadFile(tree, name)
	if err != nil {
		return err
	}
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, text, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	lengths[name] = bytes.Count(text, []byte("\n"))
	for _, decl := range file.Decls {
		if fn, ok := decl.(*ast.FuncDecl); ok {
			lines := set.Position(fn.End()).Line - set.Position(fn.Pos()).Line + 1
			key := name + " " + functionName(fn)
			lengths[key] = max(lengths[key], lines) // more than one init
		}
	}
	return nil
}

func functionName(fn *ast.FuncDecl) string {
	if fn.Recv == nil || len(fn.Recv.List) == 0 {
		return fn.Name.Name
	}
	receiver := fn.Recv.List[0].Type
	for {
		switch t := receiver.(type) {
		case *ast.StarExpr:
			receiver = t.X
		case *ast.IndexExpr:
			receiver = t.X
		case *ast.IndexListExpr:
			receiver = t.X
		case *ast.Ident:
			return t.Name + "." + fn.Name.Name
		default:
			return fn.Name.Name
		}
	}
}
