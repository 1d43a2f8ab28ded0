package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// An event is one line of `go test -json`; see `go doc test2json`.
type event struct {
	Action     string
	Package    string
	ImportPath string // of build output
	Test       string
	Output     string
	Elapsed    float64
}

type testID struct{ pkg, name string }

// A report follows one run of go test.
type report struct {
	to       io.Writer
	allowed  []rule
	each     bool
	outputs  map[testID]*strings.Builder // of tests that have not ended, or have failed
	passed   int
	failed   int
	skipped  int
	packages int // packages and builds that failed
	refused  []string
}

func newReport(to io.Writer, allowed []rule, each bool) *report {
	return &report{to: to, allowed: allowed, each: each, outputs: map[testID]*strings.Builder{}}
}

// read follows the events until in ends. A line that is no event is passed on as it is.
func (r *report) read(in io.Reader) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if bytes.HasPrefix(line, []byte("{")) && json.Unmarshal(line, &e) == nil {
				r.event(&e)
			} else {
				r.print(string(line))
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (r *report) event(e *event) {
	id := testID{e.Package, e.Test}
	switch {
	case e.Action == "build-output":
		r.print(e.Output)
	case e.Action == "build-fail":
		r.packages++
	case e.Test == "":
		r.packageEvent(e)
	case e.Action == "output":
		if r.outputs[id] == nil {
			r.outputs[id] = &strings.Builder{}
		}
		r.outputs[id].WriteString(e.Output)
	case e.Action == "pass":
		r.passed++
		r.ended(e, id, "PASS")
		delete(r.outputs, id)
	case e.Action == "fail":
		r.failed++
		r.ended(e, id, "FAIL")
	case e.Action == "skip":
		r.skipped++
		r.skip(id)
		delete(r.outputs, id)
	}
}

// packageEvent prints what go test itself says about a package, after the output of the tests that did not end well.
func (r *report) packageEvent(e *event) {
	switch e.Action {
	case "output":
		if e.Output != "PASS\n" {
			if strings.HasPrefix(e.Output, "FAIL\t") {
				r.printFailed(e.Package)
			}
			r.print(e.Output)
		}
	case "fail":
		r.packages++
		r.printFailed(e.Package)
	}
}

// printFailed prints the output of tests that failed, or were running when the package's process ended.
func (r *report) printFailed(pkg string) {
	ids := slices.SortedFunc(maps.Keys(r.outputs), func(a, b testID) int { return strings.Compare(a.name, b.name) })
	for _, id := range ids {
		if id.pkg == pkg {
			r.print(r.outputs[id].String())
			delete(r.outputs, id)
		}
	}
}

func (r *report) ended(e *event, id testID, word string) {
	if r.each && !strings.Contains(id.name, "/") {
		r.print(fmt.Sprintf("%s  %7.2fs  %s\n", word, e.Elapsed, id.name))
	}
}

func (r *report) skip(id testID) {
	output := ""
	if b := r.outputs[id]; b != nil {
		output = b.String()
	}
	for _, rule := range r.allowed {
		if rule.allows(id.name, output) {
			r.print(fmt.Sprintf("SKIP  %s  %s  (allowed: %s)\n", id.pkg, id.name, rule.reason))
			return
		}
	}
	r.refused = append(r.refused, id.pkg+"  "+id.name)
	r.print(fmt.Sprintf("SKIP  %s  %s  NOT ALLOWED\n%s", id.pkg, id.name, output))
}

func (r *report) print(text string) { _, _ = io.WriteString(r.to, text) }

// close prints the sums and says what must not pass.
func (r *report) close() error {
	r.print(fmt.Sprintf("%d passed, %d failed, %d skipped\n", r.passed, r.failed, r.skipped))
	var errs []error
	if len(r.refused) > 0 {
		errs = append(errs, fmt.Errorf("skipped, and not on the list of allowed skips:\n  %s", strings.Join(r.refused, "\n  ")))
	}
	if r.failed > 0 || r.packages > 0 {
		errs = append(errs, fmt.Errorf("failed: %d tests, %d packages or builds", r.failed, r.packages))
	}
	if r.passed+r.failed == 0 {
		errs = append(errs, errors.New("no test ran"))
	}
	return errors.Join(errs...)
}
