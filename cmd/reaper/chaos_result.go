package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/leaseq/leaseq/chaos"
	"github.com/leaseq/leaseq/chaos/htmlreport"
)

// noOutcome is the end of a run that was not judged.
func (c *chaosCommand) noOutcome(ctx context.Context, err error, begun bool) error {
	if ctx.Err() != nil {
		return errors.Join(fmt.Errorf("stopped: %w: all that the run had started was ended; it is void and shows nothing", context.Cause(ctx)), c.cleanUp())
	}
	if begun {
		return fmt.Errorf("%w (what there is of the run is in %s)", err, c.options.Dir)
	}
	if c.redis != "" {
		if e, wrong := parseURL(c.redis); wrong == nil {
			err = e.failed(err)
		}
	}
	return errors.Join(err, c.cleanUp())
}

// cleanUp removes the folder of the run, unless it was named.
func (c *chaosCommand) cleanUp() error {
	if c.dir != "" {
		return nil
	}
	return os.RemoveAll(c.options.Dir)
}

// tell prints what a run has shown, and returns what was not right.
func (c *chaosCommand) tell(o *chaos.Outcome) error {
	verdict := c.verdict(o)
	var errs []error
	if c.dir == "" && verdict == nil {
		o.Dir = ""
		errs = append(errs, c.cleanUp())
	}
	if c.saveTo != "" {
		errs = append(errs, o.Schedule.Save(c.saveTo))
	}
	if c.report != "" {
		errs = append(errs, c.writeReport(o))
	}
	if c.json {
		errs = append(errs, writeChaosJSON(c.app.out, o))
	} else {
		errs = append(errs, c.writeText(o))
	}
	if verdict != nil && o.Dir != "" {
		verdict = fmt.Errorf("%w; the histories are in %s", verdict, o.Dir)
	}
	return errors.Join(append(errs, verdict)...)
}

// verdict is nil where all was right.
func (c *chaosCommand) verdict(o *chaos.Outcome) error {
	if !o.OK() {
		return fmt.Errorf("not right: %d lost, %d unexpected, %d violations, %d duplicated (at most %d are explained), %d problems of the run",
			o.Lost, o.Unexpected, o.Violations, o.Duplicated, o.DuplicatesAllowed, len(o.Problems))
	}
	if !c.strict {
		return nil
	}
	var lacks []string
	if absent := absentFaults(o, len(c.faults) > 0); len(absent) > 0 {
		lacks = append(lacks, "these faults had no effect: "+strings.Join(absent, ", "))
	}
	if missing := o.Missing(); len(missing) > 0 {
		lacks = append(lacks, "these cases did not happen: "+strings.Join(missing, ", "))
	}
	if len(lacks) == 0 {
		return nil
	}
	return errors.New("nothing was wrong, but the run has not shown all: " + strings.Join(lacks, "; "))
}

// absentFaults are those that have shown nothing; if they were named one by one, also those that cannot be made here.
func absentFaults(o *chaos.Outcome, named bool) []string {
	absent := o.Silent()
	for _, f := range o.Faults {
		if named && f.Unavailable != "" {
			absent = append(absent, f.Name+" (not here: "+f.Unavailable+")")
		}
	}
	return absent
}

func (c *chaosCommand) writeReport(o *chaos.Outcome) (err error) {
	file, err := os.Create(c.report)
	if err != nil {
		return fmt.Errorf("--report: %w", err)
	}
	page := &htmlreport.Page{Outcome: o, Command: c.again(o)}
	if err := errors.Join(page.Write(file), file.Close()); err != nil {
		return fmt.Errorf("--report: %w", err)
	}
	return nil
}

// again is what a person types to make the run again.
func (c *chaosCommand) again(o *chaos.Outcome) string {
	duration := time.Duration(o.Schedule.DurationMS) * time.Millisecond
	words := []string{"reaper chaos", "--seed", fmt.Sprint(o.Seed), "--duration", length(duration)}
	if c.schedule != "" {
		words = []string{"reaper chaos", "--schedule", quoted(c.schedule)}
	}
	add := func(changed bool, flag, value string) {
		if changed {
			words = append(words, flag, quoted(value))
		}
	}
	add(true, "--lease", length(c.lease))
	add(c.redis != "", "--redis", redact(c.redis))
	add(c.prefix != "leaseq", "--prefix", c.prefix)
	add(len(c.faults) > 0, "--faults", strings.Join(c.faults, ","))
	add(c.workers != 4, "--workers", fmt.Sprint(c.workers))
	add(c.concurrency != 16, "--concurrency", fmt.Sprint(c.concurrency))
	add(c.rate != 200, "--rate", fmt.Sprint(c.rate))
	add(c.profile != chaos.Profiles()[0], "--profile", c.profile)
	add(c.other != "", "--other-version", c.other)
	if len(c.program) > 0 {
		words = append(words, "--kind", quoted(c.kind), "--payload", quoted(c.payload), "--")
		for _, word := range c.program {
			words = append(words, quoted(word))
		}
	}
	return strings.Join(words, " ")
}

// quoted is a word for a shell.
func quoted(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:,@%+=", r)
	}
	if word != "" && strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// The JSON of `reaper chaos --json`: that of an Outcome, with the faults by name. Fields are only ever added.
type chaosJSON struct {
	OK      bool   `json:"ok"`
	Version string `json:"version"` // of this program
	*chaos.Outcome
	Faults  map[string]chaos.FaultCount `json:"faults"`
	Silent  []string                    `json:"silent"`
	Missing []string                    `json:"missing"`
}

func writeChaosJSON(w io.Writer, o *chaos.Outcome) error {
	out := chaosJSON{
		OK: o.OK(), Version: programVersion(), Outcome: o, Faults: byName(o.Faults),
		Silent: append([]string{}, o.Silent()...), Missing: append([]string{}, o.Missing()...), // never null
	}
	if o.Problems == nil {
		o.Problems = []string{}
	}
	if o.Windows == nil {
		o.Windows = []chaos.Window{}
	}
	return json.NewEncoder(w).Encode(out)
}

func byName(faults []chaos.FaultCount) map[string]chaos.FaultCount {
	out := map[string]chaos.FaultCount{}
	for _, f := range faults {
		out[f.Name] = f
	}
	return out
}
