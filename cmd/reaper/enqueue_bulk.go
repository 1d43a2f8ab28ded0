package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/leaseq/leaseq/reliable"
)

// lastBatch is how long the batch under way may still take after a signal.
const lastBatch = 10 * time.Second

// A bulk is one run over the lines of a file, and its books: every line up to certain is in exactly one of them.
type bulk struct {
	c    *enqueueCommand
	show *progress

	created    int64 // or, in a dry run, what would be sent
	duplicates map[reliable.Place]int64
	failed     int64
	unknown    int64 // lines after certain whose jobs were perhaps made
	certain    int64 // the last line of which is known what became of it
	ended      bool  // certain is the last line of the file
}

// runBulk enqueues the lines of a file.
func (c *enqueueCommand) runBulk(ctx context.Context) error {
	in, size, err := openLines("--jsonl", c.jsonl, c.in)
	if err != nil {
		return err
	}
	defer in.Close()
	b := &bulk{c: c, show: newProgress(c.app.err, size), duplicates: map[reliable.Place]int64{}, certain: c.from - 1}
	source := newLineSource(in, size >= 0, c.from, func(text []byte, number int64) (reliable.Item, error) {
		item, err := parseLine(text, c.kind)
		if err == nil && item.ID == "" {
			item.ID = lineID(c.series, number, text)
		}
		if err == nil {
			err = c.q.Check(item)
		}
		return item, err
	})
	over := make(chan struct{})
	defer close(over)
	err = b.run(ctx, source.handOver(over))
	b.show.hide()
	return errors.Join(err, b.tell())
}

// openLines opens a file of lines; - is standard input. Its size is -1 where it is not a file whose end is there already.
func openLines(what, name string, stdin io.Reader) (in io.ReadCloser, size int64, err error) {
	if name == "-" {
		return io.NopCloser(stdin), -1, nil
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, -1, fmt.Errorf("%s: %w", what, err)
	}
	info, err := file.Stat()
	if err != nil {
		return nil, -1, errors.Join(fmt.Errorf("%s: %w", what, err), file.Close())
	}
	if info.IsDir() {
		return nil, -1, errors.Join(fmt.Errorf("%s: %s is a directory", what, name), file.Close())
	}
	if !info.Mode().IsRegular() {
		return file, -1, nil
	}
	return file, info.Size(), nil
}

// run sends one batch after the other, and returns why not all of them were.
func (b *bulk) run(ctx context.Context, batches <-chan *batch[reliable.Item]) error {
	for {
		if ctx.Err() != nil {
			return fmt.Errorf("stopped: %w", context.Cause(ctx))
		}
		var next *batch[reliable.Item]
		select {
		case next = <-batches:
		case <-ctx.Done():
			continue
		}
		if err := b.send(ctx, next); err != nil {
			return err
		}
		if next.end == io.EOF {
			b.ended = true
			return nil
		}
		if next.end != nil {
			return fmt.Errorf("cannot read on: %w", next.end)
		}
		b.show.update(next.read, "line %d: %d created, %d there already, %d failed", b.certain, b.created, b.allDuplicates(), b.failed)
	}
}

// send sends the jobs of a batch and books its lines in their order, up to the first of which it is not known what
// became of it. An error says why nothing more is to be sent.
func (b *bulk) send(ctx context.Context, next *batch[reliable.Item]) error {
	var items []reliable.Item
	for i := range next.lines {
		if next.lines[i].err == nil {
			items = append(items, next.lines[i].item)
		}
	}
	var results []reliable.Enqueued
	var failure error
	if len(items) > 0 && !b.c.dryRun {
		results, failure = b.enqueue(ctx, items)
	}
	patience := b.c.timeout
	if ctx.Err() != nil {
		patience = min(patience, lastBatch)
	}
	truth := newTruths(patience)
	defer truth.cancel()
	sent := 0
	for i := range next.lines {
		one := &next.lines[i]
		err := one.err
		if err == nil && !b.c.dryRun {
			err = truth.of(results[sent].Err)
			if stop := b.notDone(err, failure); stop != nil {
				for _, later := range results[sent:] {
					if isUnknown(truth.of(later.Err)) {
						b.unknown++
					}
				}
				return stop
			}
			sent++
		}
		b.book(one, err)
	}
	b.certain = max(b.certain, next.last)
	return nil
}

// enqueue sends jobs. A signal gives it some more time, but not as much as it would have without.
func (b *bulk) enqueue(ctx context.Context, items []reliable.Item) ([]reliable.Enqueued, error) {
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.c.timeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(lastBatch, cancel) })
	defer stop()
	return b.c.q.EnqueueMany(bounded, items)
}

// notDone says why sending ends with a line, or nil where it is known what became of its job: made, there already, or
// refused for its own sake. failure is that of the call that the line was sent with, or of one before.
func (b *bulk) notDone(err, failure error) error {
	switch {
	case err == nil, errors.Is(err, reliable.ErrDuplicate), isRefusal(err):
		return nil
	case isUnknown(err):
		return &ExitError{Code: exitRedis, Err: fmt.Errorf("stopped: it is not known what became of a batch: %w", err)}
	case failure != nil:
		return fmt.Errorf("stopped: %w", b.c.endpoint.failed(err))
	}
	return nil
}

func (b *bulk) book(one *line[reliable.Item], err error) {
	b.certain = one.number
	var duplicate *reliable.DuplicateError
	switch {
	case err == nil:
		b.created++
	case errors.As(err, &duplicate):
		b.duplicates[duplicate.Place]++
	default:
		b.failed++
		b.show.say("line %d: %v", one.number, err)
	}
}

func (b *bulk) allDuplicates() (sum int64) {
	for _, n := range b.duplicates {
		sum += n
	}
	return sum
}

// The JSON of `reaper enqueue --jsonl --json`.
type bulkJSON struct {
	Queue      string                   `json:"queue"`
	DryRun     bool                     `json:"dry_run"`
	Created    int64                    `json:"created"` // in a dry run: what would be sent
	Duplicates map[reliable.Place]int64 `json:"duplicates"`
	Failed     int64                    `json:"failed"`
	Unknown    int64                    `json:"unknown"`
	Certain    int64                    `json:"certain_to_line"`
	Next       *int64                   `json:"next_line"` // null: all lines were read
}

// tell prints the books, and returns that they are not good.
func (b *bulk) tell() error {
	out := bulkJSON{
		Queue: b.c.queue, DryRun: b.c.dryRun, Created: b.created, Duplicates: b.duplicates, Failed: b.failed, Unknown: b.unknown,
		Certain: b.certain,
	}
	if !b.ended {
		out.Next = new(b.certain + 1)
	}
	var errs []error
	if b.c.json {
		errs = append(errs, json.NewEncoder(b.c.app.out).Encode(out))
	} else {
		_, err := fmt.Fprintln(b.c.app.out, b.summary())
		errs = append(errs, err)
	}
	if b.failed > 0 {
		errs = append(errs, fmt.Errorf("%d lines are wrong or were refused", b.failed))
	}
	if !b.ended {
		errs = append(errs, b.whereToGoOn())
	}
	return errors.Join(errs...)
}

func (b *bulk) summary() string {
	what := "created"
	if b.c.dryRun {
		what = "would be sent"
	}
	text := fmt.Sprintf("%d %s, %d there already", b.created, what, b.allDuplicates())
	if places := tellPlaces(b.duplicates); places != "" {
		text += " (" + places + ")"
	}
	text += fmt.Sprintf(", %d failed", b.failed)
	if b.unknown > 0 {
		text += fmt.Sprintf(", %d unknown", b.unknown)
	}
	return text
}

func (b *bulk) whereToGoOn() error {
	if b.certain < b.c.from && b.unknown == 0 {
		return errors.New("nothing was enqueued")
	}
	text := fmt.Sprintf("all is certain up to line %d: go on with --from-line %d", b.certain, b.certain+1)
	if b.unknown > 0 {
		text += fmt.Sprintf(" (the jobs of the next %d lines were perhaps made: sent again they make no second job while the first is there, "+
			"but one that was acked meanwhile is made again)", b.unknown)
	}
	return errors.New(text)
}
