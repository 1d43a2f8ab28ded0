package htmlreport

import (
	_ "embed"
	"errors"
	"html/template"
	"io"
	"strings"
	"sync"

	"github.com/leaseq/leaseq/chaos"
)

//go:embed page.html
var pageText string

// parsed is the template. It is not parsed at the start of every program that has this package inside.
var parsed = sync.OnceValue(func() *template.Template { return template.Must(template.New("page").Parse(pageText)) })

// Write writes the report of an outcome: one HTML file in UTF-8 that refers to nothing outside of itself. The command
// that it names to do the run again has the seed, the duration and the lease; see Page to name another. An error is one
// of the writer, or says that a plot could not be drawn; what was written until then is no whole file.
func Write(out io.Writer, o *chaos.Outcome) error { return (&Page{Outcome: o}).Write(out) }

// A Page is a report with what an Outcome does not know. Outcome is required.
type Page struct {
	Outcome *chaos.Outcome
	// Command is what a person types to make the run again. Default: reaper chaos with the seed, the duration and the lease.
	Command string
}

// Write writes the report; see the function of that name.
func (p *Page) Write(out io.Writer) error {
	if p.Outcome == nil {
		return errors.New("htmlreport: Outcome is nil")
	}
	content, err := p.content()
	if err != nil {
		return err
	}
	text := &strings.Builder{} // all of it or nothing
	if err := parsed().Execute(text, content); err != nil {
		return err
	}
	_, err = io.WriteString(out, text.String())
	return err
}
