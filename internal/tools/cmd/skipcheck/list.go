package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
)

// A rule allows one skip: of tests whose name matches, and only for the stated reason.
type rule struct {
	name   *regexp.Regexp
	reason string
}

// allows reports whether the output of a skipped test gives this rule's reason.
func (r rule) allows(test, output string) bool {
	return r.name.MatchString(test) && strings.Contains(output, r.reason)
}

// readList reads the list of allowed skips. ci leaves out what is allowed only elsewhere.
func readList(path string, ci bool) ([]rule, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("the list of allowed skips: %w", err)
	}
	rules, err := parseList(string(text), ci)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return rules, nil
}

// parseList reads lines of `where | regular expression of the test's whole name | reason`, where is `any` or `local`.
// Empty lines and lines that start with # say nothing. The error names every line that is wrong.
func parseList(text string, ci bool) ([]rule, error) {
	var rules []rule
	var errs []error
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		where, r, err := parseRule(line)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("line %d: %w", i+1, err))
		case where == "any" || !ci:
			rules = append(rules, r)
		}
	}
	return rules, errors.Join(errs...)
}

func parseRule(line string) (where string, r rule, err error) {
	fields := strings.Split(line, " | ")
	if len(fields) != 3 {
		return "", rule{}, fmt.Errorf("%q: want `where | test | reason`", line)
	}
	where, r.reason = strings.TrimSpace(fields[0]), strings.TrimSpace(fields[2])
	if where != "any" && where != "local" {
		return "", rule{}, fmt.Errorf("where is %q: want any, or local for what may not be skipped where CI=true", where)
	}
	if r.reason == "" {
		return "", rule{}, errors.New("the reason is empty: want a part of what the test says when it skips")
	}
	r.name, err = regexp.Compile("^(?:" + strings.TrimSpace(fields[1]) + ")$")
	return where, r, err
}
