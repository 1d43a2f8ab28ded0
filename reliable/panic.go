package reliable

import (
	"runtime"
	"strings"
	"unicode"
)

// panicError is the error of a handler that did not return: it has panicked or ended its goroutine. It wraps nothing,
// so that a verdict given to panic is no verdict: the job is nacked.
type panicError struct {
	// Reason is one line of at most 512 bytes: "panic: " and the value's text, or that the goroutine was ended.
	Reason string
	// Stack is where it happened: at most 4 KiB of valid UTF-8, without control characters but for newline and tab.
	Stack string
}

// Error returns Reason.
func (e *panicError) Error() string { return e.Reason }

// panicked makes the error for a value that was given to panic. Call it in the deferred function that caught it.
func panicked(value any) *panicError {
	return &panicError{Reason: reasonText("panic: "+headOf(panicText(value)), maxReason), Stack: stackHere("panic(")}
}

// exited makes the error for a handler that called runtime.Goexit. Call it in a deferred function.
func exited() *panicError {
	return &panicError{Reason: "handler ended its goroutine (runtime.Goexit)", Stack: stackHere("runtime.Goexit(")}
}

// headOf returns as much of s as can matter for a reason, so that a huge text is not copied.
func headOf(s string) string {
	const most = 64 << 10 // leaves room for white space that is taken out
	return s[:min(len(s), most)]
}

// stackHere returns the stack of the calling goroutine, from the line that begins with from on.
func stackHere(from string) string {
	trace := make([]byte, 4*maxStack)
	return stackText(string(trace[:runtime.Stack(trace, false)]), from, maxStack)
}

// stackText returns a stack trace without the calls above the line that begins with from, if there is one; that line
// comes first. It is valid UTF-8 without control characters other than newline and tab, and has at most the given
// number of bytes; where it is cut, it is cut at the end of a line if it has one.
func stackText(trace, from string, most int) string {
	if at := strings.Index(trace, "\n"+from); at >= 0 {
		trace = trace[at+1:]
	}
	text := boundedText{most: most}
	for _, r := range trace {
		if r != '\n' && r != '\t' && unicode.IsControl(r) || turnsDirection(r) {
			continue
		}
		if text.add(r) {
			continue
		}
		cut := text.String()
		if end := strings.LastIndexByte(cut, '\n'); end >= 0 {
			cut = cut[:end]
		}
		return cut
	}
	return strings.TrimRight(text.String(), "\n")
}
