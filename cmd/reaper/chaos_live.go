package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/leaseq/leaseq/chaos"
)

// A live shows on standard error how far a run is: one line that changes on a terminal, and else a line now and then.
type live struct {
	c        *chaosCommand
	out      io.Writer
	terminal bool
	width    func() int // of the terminal, in characters
	shown    bool       // the line that changes
	begun    bool
	phase    string
	told     time.Time
}

func newLive(c *chaosCommand) *live {
	return &live{c: c, out: c.app.err, terminal: isTerminal(c.app.err), width: func() int { return width(c.app.err) }}
}

// show is called by the run, first when it has begun, so never in the process of a worker.
func (l *live) show(p chaos.Progress) {
	if !l.begun {
		l.begun = true
		l.introduce(&p)
	}
	every := drawEvery
	if !l.terminal {
		every = min(max(p.Total/20, 5*time.Second), time.Minute)
	}
	if p.Phase == l.phase && time.Since(l.told) < every {
		return
	}
	l.phase, l.told = p.Phase, time.Now()
	if l.terminal {
		fmt.Fprint(l.out, clearLine+cropped(l.line(&p), l.width()-1))
		l.shown = true
		return
	}
	fmt.Fprintln(l.out, l.line(&p))
}

// clearLine goes to the begin of an empty line on a terminal.
const clearLine = "\r\x1b[2K"

// end takes the line that changes away.
func (l *live) end() {
	if l.shown {
		fmt.Fprint(l.out, clearLine)
		l.shown = false
	}
}

// introduce says what is needed to make the run again, in case that it does not come to its end.
func (l *live) introduce(p *chaos.Progress) {
	o := &l.c.options
	seed := o.Seed
	if o.Schedule != nil {
		seed = o.Schedule.Seed
	}
	where := "a redis-server of its own"
	if o.URL != "" {
		where = redact(o.URL)
	}
	fmt.Fprintf(l.out, "seed %d: %s, lease %s, %d workers with %d jobs each, on %s\n", seed, length(p.Total), length(o.Lease), o.Workers, o.Concurrency, where)
}

// line is how far the run is, the most important first, since a terminal may be narrow.
func (l *live) line(p *chaos.Progress) string {
	text := fmt.Sprintf("%s %.0f/%.0fs: %d jobs, %d acked, %d kills, %d expiries, %d violations", p.Phase, p.Elapsed.Seconds(), p.Total.Seconds(),
		p.Enqueued, p.Acked, p.Kills, p.Expired, p.Violations)
	if len(p.Under) > 0 {
		text += "; now " + strings.Join(p.Under, ", ")
	}
	return text
}

// width is how many characters a line of the terminal has.
func width(stream any) int {
	if file, ok := stream.(*os.File); ok {
		if n, _, err := term.GetSize(int(file.Fd())); err == nil && n > 0 {
			return n
		}
	}
	return 80
}

// cropped is the begin of a text that would not fit.
func cropped(text string, n int) string {
	if n = max(n, 20); utf8.RuneCountInString(text) <= n {
		return text
	}
	return string([]rune(text)[:n-1]) + "…"
}
