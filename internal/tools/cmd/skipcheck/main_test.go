package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// module writes a module with one package of tests and returns its folder.
func module(t *testing.T, tests string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example.org/m\n\ngo 1.26\n", "m_test.go": "package m\n\nimport \"testing\"\n\n" + tests, "skips.txt": "any | TestListed | far away\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestTheExitCodeTellsOfARealRun(t *testing.T) {
	t.Parallel()
	const good = "func TestGood(t *testing.T) {}\n"
	for _, c := range []struct {
		name, tests string
		code        int
		says        string
	}{
		{"a good run", good, 0, "ok  \texample.org/m"},
		{"a listed skip", good + `func TestListed(t *testing.T) { t.Skip("the moon is far away") }`, 0, "1 passed, 0 failed, 1 skipped"},
		{"a skip that is not listed", good + `func TestOther(t *testing.T) { t.Skip("the moon is far away") }`, 1, "TestOther  NOT ALLOWED"},
		{"a failure", good + `func TestBad(t *testing.T) { t.Error("of no use") }`, 1, "of no use"},
		{"no test", "func helper(*testing.T) {}\nvar _ = helper\n", 1, "0 passed, 0 failed, 0 skipped"},
		{"a broken build", "func TestBad(t *testing.T) { undefined() }\n", 1, "undefined: undefined"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := module(t, c.tests)
			var out, errs bytes.Buffer
			code := run(t.Context(), []string{"-list", filepath.Join(dir, "skips.txt"), "-dir", dir, "--", "-count=1", "./..."}, &out, &errs)
			if code != c.code {
				t.Errorf("exit code %d, want %d\n%s%s", code, c.code, &out, &errs)
			}
			contains(t, out.String(), c.says)
		})
	}
}

func TestItsOwnMistakesAreExitCodeTwo(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	for _, args := range [][]string{{"-list", filepath.Join(t.TempDir(), "none")}, {"-unheard-of"}} {
		if code := run(t.Context(), args, &out, &errs); code != 2 {
			t.Errorf("%v: exit code %d, want 2", args, code)
		}
	}
}
