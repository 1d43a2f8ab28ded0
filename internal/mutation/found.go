package mutation

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

var (
	passed = regexp.MustCompile(`(?m)^--- PASS: `)
	failed = regexp.MustCompile(`(?m)^--- FAIL: (\S+)`)
	after  = regexp.MustCompile(`\[rapid\] (?:failed|panic) after (\d+) tests`)
	flaky  = regexp.MustCompile(`\[rapid\] flaky test`)
	action = regexp.MustCompile(`(?m)\[rapid\] draw action: `)
	deeds  = regexp.MustCompile(`(?m)\[rapid\] draw deeds: (.*)$`)
)

// readTests reads what a test binary wrote.
func (f *Found) readTests(right bool) error {
	tests := failed.FindAllStringSubmatch(f.Output, -1)
	switch {
	case right && passed.MatchString(f.Output):
		return nil
	case right:
		return errors.New("no test has run")
	case len(tests) == 0:
		return errors.New("it ended without a failed test")
	}
	f.Caught, f.By = true, tests[0][1]
	if at := after.FindStringSubmatchIndex(f.Output); at != nil {
		before, err := strconv.Atoi(f.Output[at[2]:at[3]])
		if err != nil {
			return err
		}
		f.After = fmt.Sprintf("list %d; shortest: %d calls", before+1, steps(f.Output[at[1]:]))
	} else if at := flaky.FindStringIndex(f.Output); at != nil {
		f.After = fmt.Sprintf("%d calls", steps(f.Output[at[1]:]))
	}
	return nil
}

// steps counts the calls or deeds of the shortest list that fails, which is printed last.
func steps(text string) int {
	if list := deeds.FindStringSubmatch(text); list != nil {
		return strings.Count(list[1], "what:")
	}
	return len(action.FindAllString(text, -1))
}

// A Finding is what the storm command prints.
type Finding struct {
	Checks     map[string]int64 `json:"checks"`     // violations of the checks that have any
	Problems   []string         `json:"problems"`   // what else was not right
	Silent     []string         `json:"silent"`     // faults that had no effect
	Operations int64            `json:"operations"` // enqueues, starts and settles
}

// readStorm reads what the storm command wrote. Only a check of the history counts.
func (f *Found) readStorm(text []byte) error {
	var found Finding
	if err := json.Unmarshal(text, &found); err != nil {
		return fmt.Errorf("the storm's answer: %w", err)
	}
	f.After = fmt.Sprintf("%d operations", found.Operations)
	f.Caught = len(found.Checks) > 0
	if len(found.Problems) > 0 && !f.Caught {
		return fmt.Errorf("the storm was not right, and no check says why: %s", strings.Join(found.Problems, "; "))
	}
	byCount := slices.SortedFunc(maps.Keys(found.Checks), func(a, b string) int {
		return int(found.Checks[b] - found.Checks[a])
	})
	for i, name := range byCount {
		byCount[i] = fmt.Sprintf("`%s` (%d)", name, found.Checks[name])
	}
	f.By = strings.Join(byCount, ", ")
	return nil
}
