package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/reliable"
)

// How long Redis may be away by default.
const (
	enqueuePatience = 5 * time.Second
	bulkPatience    = time.Minute
)

// enqueueCommand is `reaper enqueue`.
type enqueueCommand struct {
	app        *App
	connection connectionFlags

	kind, id, at          string
	notAfter, conflict    string
	delay                 time.Duration
	headers               []string
	maxRetries            optionalInt
	maxExpiries           optionalInt
	file                  string
	jsonl, series         string
	from                  int64
	acceptDuplicate, json bool
	dryRun                bool
	payloadLimit          int
	timeout               time.Duration

	queue    string
	args     []string // behind the queue's name
	in       io.Reader
	item     reliable.Item // without the payload, which is read later
	endpoint *endpoint
	q        *reliable.Queue
}

func newEnqueueCommand(a *App) *cobra.Command {
	c := &enqueueCommand{app: a}
	cmd := &cobra.Command{
		Use:     "enqueue QUEUE --kind K (PAYLOAD | --file FILE | -) | QUEUE --jsonl (FILE | -)",
		Short:   "Enqueue a job, or many from a file",
		Long:    enqueueHelp,
		Example: enqueueExample,
		Args:    cobra.RangeArgs(1, 2),
		PreRunE: func(cmd *cobra.Command, args []string) error {
			c.in = cmd.InOrStdin()
			return c.prepare(args)
		},
		RunE:              func(cmd *cobra.Command, _ []string) error { return c.run(cmd.Context()) },
		ValidArgsFunction: completeQueues(a, 1),
	}
	flags := cmd.Flags()
	c.connection.add(flags)
	flags.StringVar(&c.kind, "kind", "", "`kind` of the job; with --jsonl of those lines that say none")
	flags.StringVar(&c.id, "id", "", "`ID` of the job; default: a new one")
	flags.DurationVar(&c.delay, "delay", 0, "how long from now until the job is due, as 30m")
	flags.StringVar(&c.at, "at", "", "`time` when the job is due, instead of --delay, as 2026-01-31T08:00:00Z (RFC 3339), by Redis' clock")
	flags.StringArrayVar(&c.headers, "header", nil, "`name=value` that goes with the job; may be given several times")
	flags.Var(&c.maxRetries, "max-retries", "failures that this job survives; default: the queue's")
	flags.Var(&c.maxExpiries, "max-expiries", "leases that ran out that this job survives; default: the queue's")
	flags.StringVar(&c.file, "file", "", "`file` whose bytes are the payload")
	flags.StringVar(&c.jsonl, "jsonl", "", "`file` with a job on each line, - for standard input")
	flags.Int64Var(&c.from, "from-line", 1, "with --jsonl: the line to begin with; those before are skipped")
	flags.StringVar(&c.series, "series", "", "with --jsonl: `text` that goes into the IDs made from lines")
	flags.BoolVar(&c.dryRun, "dry-run", false, "check everything and send nothing")
	flags.StringVar(&c.notAfter, "not-after", "", "`time` after which the job is too late to be started, as 2026-01-31T08:00:00Z (RFC 3339), by Redis' clock")
	flags.StringVar(&c.conflict, "on-conflict", "reject", "`what` happens where a job has this ID: reject, keep (no failure), or replace one that is due, dead or done")
	flags.BoolVar(&c.acceptDuplicate, "accept-duplicate", false, "a job with this ID that is there already is no failure")
	flags.BoolVar(&c.json, "json", false, "print one JSON object on standard output")
	flags.IntVar(&c.payloadLimit, "payload-limit", reliable.DefaultPayloadLimit, "`bytes` that a payload may have, at most 256 MiB; a smaller limit of the queue holds too")
	flags.DurationVar(&c.timeout, "timeout", 0, "how long Redis may be away; default: 5s, with --jsonl 1m")
	return cmd
}

// prepare checks what can be checked without reading the payload, and contacts nobody.
func (c *enqueueCommand) prepare(args []string) (err error) {
	c.queue, c.args = args[0], args[1:]
	if err := errors.Join(keys.ValidateName("queue name", c.queue), c.checkSource(), c.checkNumbers()); err != nil {
		return err
	}
	if c.timeout == 0 {
		c.timeout = enqueuePatience
		if c.jsonl != "" {
			c.timeout = bulkPatience
		}
	}
	if c.endpoint, err = c.connection.parse(); err != nil {
		return err
	}
	rdb := c.app.open(c.endpoint, true)
	c.q, err = reliable.New(rdb, c.queue, &reliable.QueueOptions{Prefix: c.connection.prefix, PayloadLimit: c.payloadLimit})
	if err != nil {
		return fmt.Errorf("--payload-limit: %w", err) // all else was checked
	}
	if c.jsonl != "" {
		if c.kind == "" {
			return nil
		}
		return c.q.Check(reliable.Item{Kind: c.kind})
	}
	if c.item, err = c.newItem(); err != nil {
		return err
	}
	return c.q.Check(c.item)
}

// checkSource wants exactly one place where jobs come from, and with --jsonl nothing that is for one job alone.
func (c *enqueueCommand) checkSource() error {
	sources := len(c.args)
	for _, given := range []string{c.file, c.jsonl} {
		if given != "" {
			sources++
		}
	}
	switch {
	case sources > 1:
		return errors.New("want one of a payload, --file and --jsonl")
	case sources == 0:
		return errors.New("there is no payload: want one as an argument ('' is empty), --file FILE, - for standard input, or --jsonl FILE for many jobs")
	case c.jsonl != "" && (c.id != "" || c.delay != 0 || c.at != "" || len(c.headers) > 0 || c.maxRetries.n != nil || c.maxExpiries.n != nil || c.notAfter != "" || c.conflict != "reject" || c.acceptDuplicate):
		return errors.New("--id, --delay, --at, --not-after, --header, --max-retries, --max-expiries, --on-conflict and --accept-duplicate are for one job: with --jsonl the lines say it")
	case c.jsonl == "" && (c.series != "" || c.from != 1):
		return errors.New("--series and --from-line are for --jsonl")
	case c.jsonl == "" && c.kind == "":
		return errors.New("--kind is missing: it tells the queue's consumers which handler the job is for")
	}
	return nil
}

func (c *enqueueCommand) checkNumbers() error {
	var errs []error
	if c.timeout < 0 {
		errs = append(errs, fmt.Errorf("--timeout %v: want more than 0, as 5s", c.timeout))
	}
	if c.from < 1 {
		errs = append(errs, fmt.Errorf("--from-line %d: want 1 or more", c.from))
	}
	if c.payloadLimit < 1 {
		errs = append(errs, fmt.Errorf("--payload-limit %d: want 1 or more", c.payloadLimit))
	}
	return errors.Join(errs...)
}

// newItem makes the one job of the flags, without its payload.
func (c *enqueueCommand) newItem() (reliable.Item, error) {
	item := reliable.Item{Kind: c.kind, ID: c.id, Delay: c.delay, MaxRetries: c.maxRetries.n, MaxExpiries: c.maxExpiries.n}
	if c.at != "" {
		at, err := time.Parse(time.RFC3339, c.at)
		if err != nil {
			return item, fmt.Errorf("--at %q: want a time as 2026-01-31T08:00:00Z", c.at)
		}
		item.At = at
	}
	if c.notAfter != "" {
		at, err := time.Parse(time.RFC3339, c.notAfter)
		if err != nil {
			return item, fmt.Errorf("--not-after %q: want a time as 2026-01-31T08:00:00Z", c.notAfter)
		}
		item.NotAfter = at
	}
	switch c.conflict {
	case "reject":
	case "keep": // the duplicate tells where the job is
		c.acceptDuplicate = true
	case "replace":
		item.OnConflict = reliable.Replace
	default:
		return item, fmt.Errorf("--on-conflict %q: want reject, keep or replace", c.conflict)
	}
	for _, header := range c.headers {
		name, value, ok := strings.Cut(header, "=")
		if !ok || name == "" {
			return item, fmt.Errorf("--header %q: want name=value", header)
		}
		if _, twice := item.Headers[name]; twice {
			return item, fmt.Errorf("--header %s is given twice", name)
		}
		if item.Headers == nil {
			item.Headers = map[string]string{}
		}
		item.Headers[name] = value
	}
	return item, nil
}

func (c *enqueueCommand) run(ctx context.Context) (err error) {
	defer c.close()
	if c.jsonl != "" {
		return c.runBulk(ctx)
	}
	return c.runOne(ctx)
}

// closeBound is how long sessions may take to be closed. What is not closed then is forgotten by a sweeper later.
const closeBound = 2 * time.Second

func (c *enqueueCommand) close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeBound)
	defer cancel()
	_ = c.q.Close(ctx)
}

// An optionalInt is a flag that knows whether it was set.
type optionalInt struct{ n *int }

func (o *optionalInt) String() string {
	if o.n == nil {
		return ""
	}
	return strconv.Itoa(*o.n)
}

func (o *optionalInt) Set(text string) error {
	n, err := strconv.Atoi(text)
	if err != nil {
		return errors.New("want a whole number")
	}
	o.n = &n
	return nil
}

func (o *optionalInt) Type() string { return "int" }

// placesInOrder is how places are told.
var placesInOrder = []reliable.Place{reliable.Due, reliable.Processing, reliable.Dead, reliable.Done}

// tellPlaces writes counts by place, as "due 5, dead 2".
func tellPlaces(counts map[reliable.Place]int64) string {
	var parts []string
	for place, n := range counts {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", place, n))
		}
	}
	slices.SortFunc(parts, func(a, b string) int { return rank(a) - rank(b) })
	return strings.Join(parts, ", ")
}

func rank(part string) int {
	return slices.IndexFunc(placesInOrder, func(p reliable.Place) bool { return strings.HasPrefix(part, string(p)) })
}
