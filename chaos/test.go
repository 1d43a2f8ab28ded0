package chaos

import (
	"context"
	"os"
	"regexp"
	"strings"
)

// A T is a test: *testing.T is one.
type T interface {
	Helper()
	Name() string
	Context() context.Context
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	FailNow()
}

// Test is Run for a test. The test fails, with the report, if the run was not right, or if a fault of Options.Faults never
// had its effect (where Faults was not set: that is only logged). The worker processes are the test binary with
// -test.run for this test alone: in them Test runs Options.Worker and exits, so that what the test does before it calls
// Test is done there too, and what comes after it is not. No TestMain is needed. One call of Test a test.
func Test(t T, o *Options) *Outcome {
	t.Helper()
	if childOf(t.Name()) {
		playChild(o)
	}
	self, err := os.Executable()
	if err != nil {
		t.Errorf("chaos: %v", err)
		t.FailNow()
	}
	result, err := launch(t.Context(), o, program{
		name: t.Name(), self: self,
		selfArgs: []string{"-test.run=" + onlyThis(t.Name()), "-test.count=1", "-test.timeout=0", "-test.v=false", "-test.parallel=1"},
	})
	if err != nil {
		t.Errorf("%v", err)
		t.FailNow()
	}
	text := &strings.Builder{}
	_ = result.WriteText(text) // a Builder takes everything
	silent := result.Silent()
	switch {
	case !result.OK():
		t.Errorf("the run was not right; its histories are in %s\n%s", result.Dir, text)
	case len(silent) > 0 && o != nil && o.Faults != nil:
		t.Errorf("these faults were to come and never had an effect, so that the run is void: %s\n%s", strings.Join(silent, ", "), text)
	default:
		t.Logf("\n%s", text)
	}
	return result
}

// onlyThis is the pattern of -test.run for one test, or sub-test.
func onlyThis(name string) string {
	parts := strings.Split(name, "/")
	for i, part := range parts {
		parts[i] = "^" + regexp.QuoteMeta(part) + "$"
	}
	return strings.Join(parts, "/")
}
