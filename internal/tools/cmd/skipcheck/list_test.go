package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheListHasItsCommentsAndLocalLines(t *testing.T) {
	t.Parallel()
	const list = "# why\n\nany | TestA | always\n  local | TestB.* | only here\n"
	if n := len(parse(t, list, false)); n != 2 {
		t.Errorf("%d rules outside CI, want 2", n)
	}
	rules := parse(t, list, true)
	if len(rules) != 1 || !rules[0].allows("TestA", "always") || rules[0].allows("TestAB", "always") {
		t.Errorf("rules in CI: %v", rules)
	}
}

func TestEveryBadLineOfTheListIsNamed(t *testing.T) {
	t.Parallel()
	_, err := parseList("any | TestA\nnowhere | TestA | x\nany | Test( | x\nany | TestA |  \nany | TestA | x", false)
	if err == nil {
		t.Fatal("want an error")
	}
	contains(t, err.Error(), "line 1", "line 2", "line 3", "line 4")
	if strings.Contains(err.Error(), "line 5") {
		t.Error("line 5 is sound")
	}
}

func TestTheProjectsListIsSound(t *testing.T) {
	t.Parallel()
	if _, err := readList(filepath.Join("..", "..", "..", "..", ".ci", "skips.txt"), false); err != nil {
		t.Error(err)
	}
	if _, err := readList(filepath.Join(t.TempDir(), "none"), false); !os.IsNotExist(err) && !strings.Contains(err.Error(), "no such file") {
		t.Errorf("a list that is not there: %v", err)
	}
}
