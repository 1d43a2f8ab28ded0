package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
)

// settings are the flags.
type settings struct {
	quick, json, aof bool
	rounds           int
	systems, only    []string

	// Of a worker process that the command starts.
	worker, addr string
	concurrency  int
	fast         bool
}

// errHelp says that help was asked for, and given.
var errHelp = flag.ErrHelp

const usageText = `Usage: go run . [flags]

Measures leaseq, asynq and a bare pop from a ZSET side by side, each on redis-servers
of its own, and prints a Markdown table and JSON. Progress goes to standard error.
README.md says what each figure means.

`

// parse reads the command line. What is wrong with it is in the error; help goes to out.
func parse(args []string, out io.Writer) (settings, error) {
	var s settings
	var systems, only string
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.BoolVar(&s.quick, "quick", false, "a few figures in less than a minute; else all of them, in 12 to 20 minutes")
	f.BoolVar(&s.json, "json", false, "print one JSON object and nothing else")
	f.BoolVar(&s.aof, "aof", false, "servers with appendonly, appendfsync everysec; else without persistence")
	f.IntVar(&s.rounds, "rounds", 0, "how many rounds of enqueue, process and steady; default: 5, with -quick 3")
	f.StringVar(&systems, "systems", "", "names of systems, with commas between them; default: all")
	f.StringVar(&only, "only", "", "measurements, of "+strings.Join(measurementNames(), ",")+"; default: all")
	f.StringVar(&s.worker, "worker", "", "")
	f.StringVar(&s.addr, "addr", "", "")
	f.IntVar(&s.concurrency, "concurrency", 0, "")
	f.BoolVar(&s.fast, "fast", false, "")
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			help(f, out)
			return s, errHelp
		}
		return s, fmt.Errorf("%w (-h lists the flags)", err)
	}
	rounds := false
	f.Visit(func(set *flag.Flag) { rounds = rounds || set.Name == "rounds" })
	s.systems, s.only = split(systems), split(only)
	return s, s.check(f.Args(), rounds)
}

// check returns everything that is wrong.
func (s *settings) check(rest []string, rounds bool) error {
	var errs []error
	if len(rest) > 0 {
		errs = append(errs, fmt.Errorf("unexpected argument %q: there are only flags", rest[0]))
	}
	if rounds && (s.rounds < 1 || s.rounds > 100) {
		errs = append(errs, fmt.Errorf("-rounds %d: want 1 to 100", s.rounds))
	}
	if _, err := choose(s.systems); err != nil {
		errs = append(errs, fmt.Errorf("-systems: %w", err))
	}
	for _, name := range s.only {
		if !slices.Contains(measurementNames(), name) {
			errs = append(errs, fmt.Errorf("-only: no measurement is called %q: there are %s", name, strings.Join(measurementNames(), ", ")))
		}
	}
	if s.worker == "" {
		if s.addr != "" || s.concurrency != 0 || s.fast {
			errs = append(errs, errors.New("-addr, -concurrency and -fast are for the worker processes that the command starts"))
		}
		return errors.Join(errs...)
	}
	if _, err := choose([]string{s.worker}); err != nil {
		errs = append(errs, fmt.Errorf("-worker: %w", err))
	}
	if s.addr == "" || s.concurrency < 1 {
		errs = append(errs, errors.New("-worker needs -addr, and -concurrency of 1 or more"))
	}
	return errors.Join(errs...)
}

// plan is what the settings ask for.
func (s *settings) plan() plan {
	p := wholePlan()
	if s.quick {
		p = quickPlan()
	}
	if s.rounds > 0 {
		p.rounds = s.rounds
	}
	return p
}

// split divides a list with commas.
func split(list string) []string {
	var names []string
	for name := range strings.SplitSeq(list, ",") {
		if name = strings.TrimSpace(name); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// help writes what the flags do, but for those of workers.
func help(f *flag.FlagSet, out io.Writer) {
	fmt.Fprint(out, usageText)
	f.VisitAll(func(one *flag.Flag) {
		if one.Usage != "" {
			fmt.Fprintf(out, "  -%-8s %s\n", one.Name, one.Usage)
		}
	})
}
