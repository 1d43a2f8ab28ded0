package script

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/leaseq/leaseq/internal/keys"
)

// A Header is what the comment lines at the head of a script promise:
//
//	-- name: what it does, in one line
//	-- KEYS: sessions due …      names out of keys.Names, in the order of KEYS
//	-- ARGV: session number …    what the arguments are
//	-- ANSWER: OK … | AGAIN …    what it returns
//
// A KEYS line that ends in `records…` says that a call may add idempotency records after the fixed names, as many as it
// likes. The second line of code then binds them: `local records = {unpack(KEYS, n)}`, where n is one more than there are
// names.
//
// Calls are made from it: KEYS is built out of its names, so a header cannot lie about them. The first line of code
// must bind exactly these names, or, where there is more to say in comments, further lines may stand between.
type Header struct {
	Name    string
	About   string
	Keys    []string // the fixed names
	Records bool     // whether a call may add records to them
	Args    []string
	Answer  string
}

// Numbered reports whether the script is one of those that belong to a session.
func (h Header) Numbered() bool {
	return len(h.Args) >= 2 && h.Args[0] == "session" && h.Args[1] == "number"
}

func parseHeader(body string) (Header, error) {
	var h Header
	var code []string
	lines := strings.Split(body, "\n")
	for i, line := range lines {
		text, comment := strings.CutPrefix(line, "-- ")
		if !comment {
			code = lines[i:]
			break
		}
		label, rest, _ := strings.Cut(text, ": ")
		switch {
		case i == 0:
			h.Name, h.About = label, rest
		case label == "KEYS":
			h.Keys = strings.Fields(rest)
			if n := len(h.Keys) - 1; n >= 0 && h.Keys[n] == recordsWord {
				h.Keys, h.Records = h.Keys[:n], true
			}
		case label == "ARGV":
			h.Args = strings.Fields(strings.NewReplacer(",", " ", ";", " ").Replace(rest))
		case label == "ANSWER":
			h.Answer = rest
		}
	}
	return h, h.check(code)
}

// recordsWord ends the KEYS line of a script that takes records.
const recordsWord = "records…"

// binding is what the first lines of code must be.
func (h Header) binding() []string {
	lines := []string{"local " + strings.Join(h.Keys, ", ") + " = unpack(KEYS)"}
	if h.Records {
		lines = append(lines, fmt.Sprintf("local records = {unpack(KEYS, %d)}", len(h.Keys)+1))
	}
	return lines
}

func (h Header) check(code []string) error {
	var errs []error
	if h.Name == "" || h.About == "" {
		errs = append(errs, errors.New("the first line must be `-- name: what it does`"))
	}
	if len(h.Keys) == 0 || len(h.Args) == 0 || h.Answer == "" {
		errs = append(errs, errors.New("the header needs KEYS, ARGV and ANSWER"))
	}
	for _, name := range h.Keys {
		if !slices.Contains(keys.Names, name) {
			errs = append(errs, fmt.Errorf("KEYS names %q, which is no key of a partition", name))
		}
	}
	for i, want := range h.binding() {
		got := ""
		if i < len(code) {
			got = code[i]
		}
		if got != want {
			errs = append(errs, fmt.Errorf("the %s line of code is %q: want %q", [...]string{"first", "second"}[i], got, want))
		}
	}
	return errors.Join(errs...)
}
