package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
)

// settings are the flags.
type settings struct {
	quick, json, whole bool
	max                int
	out, costs         string
	from               string
}

// errHelp says that help was asked for, and given.
var errHelp = flag.ErrHelp

const usageText = `Usage: go run ./scale [flags]

Measures what calls cost on the server while a queue grows, on redis-servers of its own.
Prints Markdown tables. Progress goes to standard error. Ten million jobs need 5 GB of
memory, and all of it about 10 minutes.

`

// Bounds of -max.
const (
	leastMax = 1_000
	mostMax  = 100_000_000
)

// parse reads the command line. What is wrong with it is in the error; help goes to out.
func parse(args []string, out io.Writer) (settings, error) {
	var s settings
	f := flag.NewFlagSet("scale", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.BoolVar(&s.quick, "quick", false, "small queues and few calls, in less than a minute")
	f.BoolVar(&s.json, "json", false, "print the JSON instead of the tables")
	f.IntVar(&s.max, "max", 10_000_000, "the largest queue; with -quick at most 100,000")
	f.StringVar(&s.out, "out", "", "folder for scale.json, scale.md and the plots as SVG; default: none is written")
	f.StringVar(&s.costs, "costs", "", "file for the costs that 'reaper capacity' computes with; default: none is written")
	f.StringVar(&s.from, "from", "", "scale.json of an earlier run, to be shown and judged again; default: it measures")
	f.BoolVar(&s.whole, "whole", false, "with -from: measure producers and consumers again, and nothing else")
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fmt.Fprint(out, usageText)
			f.VisitAll(func(one *flag.Flag) { fmt.Fprintf(out, "  -%-6s %s\n", one.Name, one.Usage) })
			return s, errHelp
		}
		return s, fmt.Errorf("%w (-h lists the flags)", err)
	}
	var errs []error
	if f.NArg() > 0 {
		errs = append(errs, fmt.Errorf("unexpected argument %q: there are only flags", f.Arg(0)))
	}
	if s.max < leastMax || s.max > mostMax {
		errs = append(errs, fmt.Errorf("-max %d: want %d to %d", s.max, leastMax, mostMax))
	}
	if s.whole && s.from == "" {
		errs = append(errs, errors.New("-whole needs -from: all else is taken from there"))
	}
	return s, errors.Join(errs...)
}
