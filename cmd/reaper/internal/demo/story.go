package demo

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// A story tells what happens while it happens: lines with a time, and on a terminal a bar below them. It is used by one
// goroutine.
type story struct {
	out    io.Writer
	bar    *progressbar.ProgressBar // nil: not on a terminal
	shown  bool                     // the bar is on the screen
	last   progress
	lastAt time.Time
}

// progress is how far the jobs are, by Redis' counters.
type progress struct{ acked, dead, processing, due int64 }

func (p progress) String() string {
	return fmt.Sprintf("%d acked, %d dead, %d running, %d due", p.acked, p.dead, p.processing, p.due)
}

// plainEvery is how often the progress is told where there is no bar.
const plainEvery = time.Second

func newStory(out io.Writer, jobs int) *story {
	s := &story{out: out}
	if isTerminal(out) {
		s.bar = progressbar.NewOptions(jobs,
			progressbar.OptionSetWriter(out), progressbar.OptionSetWidth(24), progressbar.OptionShowCount(),
			progressbar.OptionSetPredictTime(false), progressbar.OptionUseANSICodes(true))
	}
	return s
}

func isTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// say tells one thing.
func (s *story) say(format string, args ...any) {
	s.hide()
	fmt.Fprintf(s.out, "%s  %s\n", time.Now().Format("15:04:05.000"), fmt.Sprintf(format, args...))
	if s.bar != nil && s.last != (progress{}) {
		s.draw()
	}
}

// update tells how far the jobs are, if that has changed.
func (s *story) update(p progress) {
	if p == s.last {
		return
	}
	switch {
	case s.bar != nil:
		s.last = p
		s.hide()
		s.draw()
	case time.Since(s.lastAt) >= plainEvery:
		s.last, s.lastAt = p, time.Now()
		s.say("%v", p)
	}
}

// end takes the bar away.
func (s *story) end() {
	s.hide()
	s.bar = nil
}

func (s *story) draw() {
	s.bar.Describe(fmt.Sprintf("%-42v", s.last))
	_ = s.bar.Set64(s.last.acked + s.last.dead)
	s.shown = true
}

func (s *story) hide() {
	if s.bar != nil && s.shown {
		_, _ = io.WriteString(s.out, "\r\x1b[2K")
		s.shown = false
	}
}
