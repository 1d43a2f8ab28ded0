package cases

import (
	"strings"
	"sync"
	"time"

	"github.com/leaseq/leaseq/internal/netfault"
)

// A failure is a way in which one call of a client fails, as a proxy makes it.
type failure struct {
	Name   string
	Action netfault.Action
	Ran    bool // the call has run all the same
	Told   bool // a numbered call is not repeated for it, but told to its caller
}

// failures are all ways in which a call to Redis fails, whatever the call is: the network's, and the server's.
var failures = []failure{
	{Name: "end of the stream", Action: netfault.HangUp},
	{Name: "connection reset", Action: netfault.DropRequest},
	{Name: "reply lost", Action: netfault.DropReply, Ran: true},
	{Name: "timeout", Action: netfault.Hold},
	{Name: "BUSY", Action: netfault.Answer("-BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.\r\n")},
	{Name: "LOADING", Action: netfault.Answer("-LOADING Redis is loading the dataset in memory\r\n")},
	{Name: "READONLY", Action: netfault.Answer("-READONLY You can't write against a read only replica.\r\n")},
	{Name: "OOM", Action: netfault.Answer("-OOM command not allowed when used memory > 'maxmemory'.\r\n"), Told: true},
	{Name: "WRONGTYPE", Action: netfault.Answer("-WRONGTYPE Operation against a key holding the wrong kind of value\r\n"), Told: true},
	{Name: "NOAUTH", Action: netfault.Answer("-NOAUTH Authentication required.\r\n"), Told: true},
	{Name: "a number for an answer", Action: netfault.Answer(":1\r\n"), Told: true},
	{Name: "nil for an answer", Action: netfault.Answer("$-1\r\n")},
	{Name: "an empty array for an answer", Action: netfault.Answer("*0\r\n"), Told: true},
	{Name: "an array of another shape", Action: netfault.Answer("*3\r\n$2\r\nOK\r\n*1\r\n:1\r\n$-1\r\n"), Told: true},
}

// A failer makes calls of a client fail: so many of those of each sort as it was told last.
type failer struct {
	sort func(cmd []string) string // "" for a call that never fails

	mu     sync.Mutex
	action map[string]netfault.Action
	left   map[string]int
	failed map[string]int           // since the last arm
	passed map[string]int           // since the last failure of that sort, or the last arm
	lastly map[string]time.Time     // the last failure
	gap    map[string]time.Duration // from it to the next call of that sort
}

// newFailer decides for a proxy from now on.
func newFailer(p *netfault.Proxy, sort func(cmd []string) string) *failer {
	f := &failer{
		sort: sort, action: map[string]netfault.Action{},
		left: map[string]int{}, failed: map[string]int{}, passed: map[string]int{},
		lastly: map[string]time.Time{}, gap: map[string]time.Duration{},
	}
	p.Decide(f.decide)
	return f
}

// scriptName tells calls by the script that they run.
func scriptName(cmd []string) string {
	call, _ := scriptIn(cmd)
	return call.Name
}

func (f *failer) decide(cmd []string) netfault.Action {
	sort := f.sort(cmd)
	if sort == "" {
		return netfault.Pass
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, part := range strings.Split(sort, "+") { // a call that holds two fails as either of them is to
		if sort = part; f.left[part] > 0 {
			break
		}
	}
	if f.left[sort] == 0 {
		if f.passed[sort]++; f.passed[sort] == 1 {
			f.gap[sort] = time.Since(f.lastly[sort])
		}
		return netfault.Pass
	}
	f.left[sort]--
	f.failed[sort]++
	f.passed[sort] = 0
	f.lastly[sort] = time.Now()
	return f.action[sort]
}

// arm has the next n calls of a sort fail.
func (f *failer) arm(sort string, action netfault.Action, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.action[sort], f.left[sort], f.failed[sort], f.passed[sort] = action, n, 0, 0
}

// failures is how many calls of a sort have failed since arm.
func (f *failer) failures(sort string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failed[sort]
}

// passes is how many calls of a sort were let through since the last one that failed.
func (f *failer) passes(sort string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.passed[sort]
}

// pause is how long it took from the last failure of a sort to the call that was let through behind it.
func (f *failer) pause(sort string) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.gap[sort]
}

// armAll is arm for several sorts.
func (f *failer) armAll(sorts []string, action netfault.Action, n int) {
	for _, sort := range sorts {
		f.arm(sort, action, n)
	}
}
