package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// A progress is a bar on standard error while something long goes on, where that is a terminal, and else nothing. Lines
// that are to stay are told through it. It is used by one goroutine.
type progress struct {
	out   io.Writer
	bar   *progressbar.ProgressBar // nil: not on a terminal
	shown bool
	drawn time.Time
}

// drawEvery is how often the bar is drawn at most.
const drawEvery = 100 * time.Millisecond

// newProgress makes one that is not shown yet; a total of -1 is not known.
func newProgress(out io.Writer, total int64) *progress {
	p := &progress{out: out}
	if isTerminal(out) {
		p.bar = progressbar.NewOptions64(total,
			progressbar.OptionSetWriter(out), progressbar.OptionSetWidth(24), progressbar.OptionSetPredictTime(false),
			progressbar.OptionSetElapsedTime(false), progressbar.OptionUseANSICodes(true),
			progressbar.OptionSetSpinnerChangeInterval(0)) // nothing is drawn but by us
	}
	return p
}

func isTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// update moves the bar.
func (p *progress) update(done int64, format string, args ...any) {
	if p.bar == nil || time.Since(p.drawn) < drawEvery {
		return
	}
	p.bar.Describe(fmt.Sprintf(format, args...))
	_ = p.bar.Set64(done) // more than the total is refused, and no harm
	p.shown, p.drawn = true, time.Now()
}

// say tells a line that stays.
func (p *progress) say(format string, args ...any) {
	p.hide()
	fmt.Fprintf(p.out, format+"\n", args...)
}

// hide takes the bar away until the next update.
func (p *progress) hide() {
	if p.shown {
		_, _ = io.WriteString(p.out, "\r\x1b[2K")
		p.shown = false
	}
}
