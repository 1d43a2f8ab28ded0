package main

import (
	"bytes"
	"strings"
	"testing"
)

// parse makes rules of a list that must be sound.
func parse(t *testing.T, list string, ci bool) []rule {
	t.Helper()
	rules, err := parseList(list, ci)
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

// reported runs events, one JSON object a line, through a report.
func reported(t *testing.T, list string, each bool, events ...string) (output string, err error) {
	t.Helper()
	var out bytes.Buffer
	r := newReport(&out, parse(t, list, false), each)
	if err := r.read(strings.NewReader(strings.Join(events, "\n"))); err != nil {
		t.Fatal(err)
	}
	err = r.close()
	return out.String(), err
}

func contains(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q lacks %q", text, part)
		}
	}
}

const skipEvents = `{"Action":"output","Package":"p","Test":"TestKill/one","Output":"    a_test.go:3: no redis-server on PATH\n"}
{"Action":"skip","Package":"p","Test":"TestKill/one"}
{"Action":"pass","Package":"p","Test":"TestKill"}
{"Action":"output","Package":"p","Output":"ok  \tp\t0.01s\n"}
{"Action":"pass","Package":"p"}`

func TestAListedSkipPassesAndIsNamed(t *testing.T) {
	t.Parallel()
	out, err := reported(t, "any | TestKill(/.*)? | no redis-server", false, skipEvents)
	if err != nil {
		t.Error(err)
	}
	contains(t, out, "SKIP  p  TestKill/one  (allowed: no redis-server)", "ok  \tp\t0.01s\n", "1 passed, 0 failed, 1 skipped\n")
}

func TestASkipFailsWithoutItsNameAndItsReasonOnTheList(t *testing.T) {
	t.Parallel()
	for _, list := range []string{"", "any | TestKill | no redis-server", "any | TestKill/.* | no Docker", "any | Kill/one | no redis-server"} {
		out, err := reported(t, list, false, skipEvents)
		if err == nil {
			t.Fatalf("list %q: want an error", list)
		}
		contains(t, err.Error(), "not on the list", "p  TestKill/one")
		contains(t, out, "NOT ALLOWED", "a_test.go:3: no redis-server on PATH")
	}
}

func TestFailuresArePrintedWholeAndPassesNotAtAll(t *testing.T) {
	t.Parallel()
	out, err := reported(t, "", false,
		`{"Action":"output","Package":"p","Test":"TestGood","Output":"chatter of a good test\n"}`,
		`{"Action":"pass","Package":"p","Test":"TestGood"}`,
		`{"Action":"output","Package":"p","Test":"TestBad","Output":"want 1, got 2\n"}`,
		`{"Action":"fail","Package":"p","Test":"TestBad"}`,
		`{"Action":"output","Package":"p","Test":"TestHung","Output":"panic: test timed out\n"}`,
		`{"Action":"output","Package":"p","Output":"FAIL\tp\t0.01s\n"}`,
		`{"Action":"fail","Package":"p"}`)
	if err == nil {
		t.Fatal("want an error")
	}
	contains(t, err.Error(), "1 tests, 1 packages")
	contains(t, out, "want 1, got 2\npanic: test timed out\nFAIL\tp\t0.01s\n", "1 passed, 1 failed, 0 skipped")
	if strings.Contains(out, "chatter") {
		t.Errorf("%q has the output of a test that passed", out)
	}
}

func TestABuildThatFailsAndARunWithoutTestsFail(t *testing.T) {
	t.Parallel()
	out, err := reported(t, "", false,
		`{"ImportPath":"p","Action":"build-output","Output":"p/a.go:1: undefined: x\n"}`,
		`{"ImportPath":"p","Action":"build-fail"}`)
	if err == nil {
		t.Fatal("want an error")
	}
	contains(t, out, "undefined: x", "0 passed, 0 failed, 0 skipped")
	contains(t, err.Error(), "no test ran", "1 packages or builds")

	out, err = reported(t, "", false, "?   \tp\t[no test files]")
	if err == nil {
		t.Fatal("want an error")
	}
	contains(t, out, "[no test files]")
}

func TestEachPrintsTheTestsButNotTheirParts(t *testing.T) {
	t.Parallel()
	out, err := reported(t, "", true,
		`{"Action":"pass","Package":"p","Test":"TestS02/part","Elapsed":1}`, `{"Action":"pass","Package":"p","Test":"TestS02","Elapsed":1.5}`)
	if err != nil {
		t.Error(err)
	}
	contains(t, out, "PASS     1.50s  TestS02\n")
	if strings.Contains(out, "part") {
		t.Errorf("%q names a part", out)
	}
}
