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
// Calls are made from it: KEYS is built out of its names, so a header cannot lie about them. The first line of code
// must bind exactly these names, or, where there is more to say in comments, further lines may stand between.
type Header struct {
	Name   string
	About  string
	Keys   []string
	Args   []string
	Answer string
}

// Numbered reports whether the script is one of those that belong to a session.
func (h Header) Numbered() bool {
	return len(h.Args) >= 2 && h.Args[0] == "session" && h.Args[1] == "number"
}

func parseHeader(body string) (Header, error) {
	var h Header
	first := ""
	for i, line := range strings.Split(body, "\n") {
		text, comment := strings.CutPrefix(line, "-- ")
		if !comment {
			first = line
			break
		}
		label, rest, _ := strings.Cut(text, ": ")
		switch {
		case i == 0:
			h.Name, h.About = label, rest
		case label == "KEYS":
			h.Keys = strings.Fields(rest)
		case label == "ARGV":
			h.Args = strings.Fields(strings.NewReplacer(",", " ", ";", " ").Replace(rest))
		case label == "ANSWER":
			h.Answer = rest
		}
	}
	return h, h.check(first)
}

func (h Header) check(first string) error {
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
	want := "local " + strings.Join(h.Keys, ", ") + " = unpack(KEYS)"
	if first != want {
		errs = append(errs, fmt.Errorf("the first line of code is %q: want %q", first, want))
	}
	return errors.Join(errs...)
}
