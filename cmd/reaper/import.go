package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/leaseq/leaseq/lease"
	"github.com/leaseq/leaseq/reliable"
)

const importHelp = `Makes jobs out of the lines of 'reaper export', in this or another queue: in the same place, with the same bytes, times,
counters, limits and last errors. A job whose ID is there already, in whatever place, is left alone and counted, so the same
file can be imported again after it broke off. A line that is wrong is reported with its number and not imported; the others
are, and the exit code is 1. --dry-run checks all lines and sends nothing.

Where it ends early it says up to which line all is certain. Limits that the queue has published are not asked for.`

const importExample = `  reaper import refunds dead-refunds.jsonl
  reaper import refunds dead-refunds.jsonl --dry-run
  reaper export old | reaper import new -`

// importCommand is `reaper import`.
type importCommand struct {
	jobFlags
	file   string
	dryRun bool
}

func newImportCommand(a *App) *cobra.Command {
	c := &importCommand{jobFlags: jobFlags{app: a}}
	cmd := &cobra.Command{
		Use: "import QUEUE (FILE | -)", Short: "Make jobs out of exported lines", Long: importHelp, Example: importExample, Args: cobra.ExactArgs(2),
	}
	cmd.Flags().BoolVar(&c.dryRun, "dry-run", false, "check everything and send nothing")
	cmd = c.command(cmd, func(cmd *cobra.Command, args []string) error {
		c.file = args[1]
		return c.prepare(cmd, args[0], 0)
	}, c.run)
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, part string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) == 1 {
			return nil, cobra.ShellCompDirectiveDefault // a file
		}
		return completeQueues(a, 1)(cmd, args, part)
	}
	return cmd
}

// parseExported reads one line of an export.
func parseExported(text []byte, _ int64) (reliable.Info, error) {
	if !utf8.Valid(text) {
		return reliable.Info{}, errors.New("not valid UTF-8")
	}
	var job jobJSON
	in := json.NewDecoder(bytes.NewReader(text))
	in.DisallowUnknownFields()
	if err := in.Decode(&job); err != nil {
		return reliable.Info{}, fmt.Errorf("not a line of an export: %w", err)
	}
	if in.InputOffset() != int64(len(text)) && len(bytes.TrimSpace(text[in.InputOffset():])) > 0 {
		return reliable.Info{}, errors.New("not a line of an export: something follows the object")
	}
	return job.info()
}

// importLine is how long a line may be: the base64 of the largest payload that a queue can be told to take.
const importLine = 512 << 20

// An importing is one run over the lines of a file, and its books.
type importing struct {
	c    *importCommand
	show *progress

	imported, failed, certain int64
	duplicates                map[reliable.Place]int64
}

func (c *importCommand) run(ctx context.Context) error {
	in, size, err := openLines("FILE", c.file, c.in)
	if err != nil {
		return err
	}
	defer in.Close()
	m := &importing{c: c, show: newProgress(c.app.err, size), duplicates: map[reliable.Place]int64{}}
	source := newLineSource(in, size >= 0, 1, parseExported)
	source.most = importLine
	over := make(chan struct{})
	defer close(over)
	err = m.run(ctx, source.handOver(over))
	m.show.hide()
	return errors.Join(err, m.tell(err == nil))
}

func (m *importing) run(ctx context.Context, batches <-chan *batch[reliable.Info]) error {
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("stopped: %w", context.Cause(ctx))
		case next := <-batches:
			if err := m.send(ctx, next); err != nil {
				return err
			}
			m.certain = max(m.certain, next.last)
			m.show.update(next.read, "line %d: %d imported", next.last, m.imported)
			switch {
			case next.end == io.EOF:
				return nil
			case next.end != nil:
				return fmt.Errorf("cannot read on: %w", next.end)
			}
		}
	}
}

// send imports the jobs of a batch, and books its lines.
func (m *importing) send(ctx context.Context, next *batch[reliable.Info]) error {
	var jobs []reliable.Info
	for i := range next.lines {
		if next.lines[i].err == nil {
			jobs = append(jobs, next.lines[i].item)
		}
	}
	results := make([]error, len(jobs))
	for i := range jobs {
		results[i] = m.c.q.CheckImport(jobs[i])
	}
	if len(jobs) > 0 && !m.c.dryRun {
		err := m.c.call(ctx, func(ctx context.Context) (err error) {
			results, err = m.c.q.Import(ctx, jobs)
			return err
		})
		if err != nil {
			return err
		}
	}
	truth := newTruths(m.c.timeout)
	defer truth.cancel()
	sent := 0
	for i := range next.lines {
		one := &next.lines[i]
		err := one.err
		if err == nil {
			err = truth.of(results[sent])
			sent++
		}
		if isUnknown(err) || errors.Is(err, reliable.ErrNeverRan) {
			return m.c.failed(err)
		}
		m.book(one.number, err)
	}
	return nil
}

func (m *importing) book(number int64, err error) {
	m.certain = number
	var duplicate *reliable.DuplicateError
	switch {
	case err == nil:
		m.imported++
	case errors.As(err, &duplicate):
		m.duplicates[duplicate.Place]++
	default:
		m.failed++
		m.show.say("line %d: %v", number, err)
	}
}

// The JSON of `reaper import --json`.
type importJSON struct {
	Queue      string                `json:"queue"`
	DryRun     bool                  `json:"dry_run"`
	Imported   int64                 `json:"imported"` // in a dry run: what would be sent
	Duplicates map[lease.Place]int64 `json:"duplicates"`
	Failed     int64                 `json:"failed"`
	Certain    int64                 `json:"certain_to_line"`
}

func (m *importing) tell(ended bool) error {
	var errs []error
	sum := int64(0)
	for _, n := range m.duplicates {
		sum += n
	}
	if m.c.json {
		errs = append(errs, writeJSONLine(m.c.app.out, importJSON{m.c.queue, m.c.dryRun, m.imported, m.duplicates, m.failed, m.certain}))
	} else {
		what := "imported"
		if m.c.dryRun {
			what = "would be sent"
		}
		text := fmt.Sprintf("%d %s, %d there already", m.imported, what, sum)
		if places := tellPlaces(m.duplicates); places != "" {
			text += " (" + places + ")"
		}
		_, err := fmt.Fprintf(m.c.app.out, "%s, %d failed\n", text, m.failed)
		errs = append(errs, err)
	}
	if m.failed > 0 {
		errs = append(errs, fmt.Errorf("%d lines are wrong or were refused", m.failed))
	}
	if !ended {
		errs = append(errs, fmt.Errorf("all is certain up to line %d: import the file again, and what is there already is left alone", m.certain))
	}
	return errors.Join(errs...)
}
