package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/leaseq/leaseq/reliable"
)

const exportHelp = `Writes dead jobs (or with --place due those that are due, also later) as JSON lines, one job each, to --out or standard output:
those that are named, or all that the flags want. A line has the ID, place, time, kind, payload, headers, enqueue time,
counters, limits, last errors and stack; 'reaper import' makes the same job out of it, to the byte. Bytes that are no
UTF-8 stand in payload_base64, headers_base64 and stack_base64, a record that does not decode in record_base64. Fields that
only tell are at, in_ms, payload_size, enqueued, undecodable, attempt, class, and what belongs to a lease.

It only reads: the jobs stay. What leaves the place while it runs is left out. It looks at one page at a time, and can be
interrupted; a file that was cut off ends in a whole line.`

const exportExample = `  reaper export refunds --out dead-refunds.jsonl
  reaper export refunds --class bad-payload --newer-than 24h | jq -r .payload
  reaper export orders --place due > orders.jsonl`

// exportCommand is `reaper export`.
type exportCommand struct {
	jobFlags
	filter filterFlags
	out    string
	ids    []string
	done   int64
}

func newExportCommand(a *App) *cobra.Command {
	c := &exportCommand{jobFlags: jobFlags{app: a}}
	cmd := &cobra.Command{
		Use: "export QUEUE [ID ...]", Short: "Write dead or due jobs as JSON lines", Long: exportHelp, Example: exportExample, Args: cobra.MinimumNArgs(1),
	}
	c.filter.add(cmd, reliable.Dead, reliable.Dead, reliable.Due)
	cmd.Flags().StringVar(&c.out, "out", "", "`file` to write, which must not be there yet; default: standard output")
	return c.command(cmd, func(cmd *cobra.Command, args []string) error {
		c.ids = args[1:]
		if len(c.ids) > 0 && c.filter.given() {
			return errors.New("want either IDs or flags that choose jobs")
		}
		if err := c.filter.check(); err != nil {
			return err
		}
		return c.prepare(cmd, args[0], 0)
	}, c.run)
}

func (c *exportCommand) run(ctx context.Context) error {
	to, closeFile, err := c.open()
	if err != nil {
		return err
	}
	lines := bufio.NewWriterSize(to, 1<<20)
	show := newProgress(c.app.err, -1)
	err = c.write(ctx, lines, show)
	show.hide()
	err = errors.Join(err, lines.Flush(), closeFile())
	if c.out != "" || err != nil {
		fmt.Fprintf(c.app.err, "%d jobs exported\n", c.done)
	}
	if err == nil && c.done == 0 {
		err = c.known(ctx)
	}
	if err == nil && c.done < int64(len(c.ids)) {
		err = fmt.Errorf("%d of %d jobs are not in %s", int64(len(c.ids))-c.done, len(c.ids), c.filter.place)
	}
	return err
}

func (c *exportCommand) open() (io.Writer, func() error, error) {
	if c.out == "" {
		return c.app.out, func() error { return nil }, nil
	}
	file, err := os.OpenFile(c.out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("--out: %w", err)
	}
	return file, file.Close, nil
}

func (c *exportCommand) write(ctx context.Context, to *bufio.Writer, show *progress) error {
	for at := 0; at < len(c.ids); at += c.filter.batch {
		if err := c.writeJobs(ctx, to, c.ids[at:min(at+c.filter.batch, len(c.ids))], show); err != nil {
			return err
		}
	}
	if len(c.ids) > 0 {
		return nil
	}
	w, err := c.filter.begin(ctx, &c.jobFlags, c.filter.place == string(reliable.Dead))
	for err == nil {
		var ok bool
		if ok, err = w.next(ctx); !ok || err != nil {
			return err
		}
		err = c.writeJobs(ctx, to, w.ids(), show)
	}
	return err
}

// exportBatch is how many jobs are held with their payloads at a time.
const exportBatch = 32

func (c *exportCommand) writeJobs(ctx context.Context, to *bufio.Writer, ids []string, show *progress) error {
	for len(ids) > 0 {
		some := ids[:min(exportBatch, len(ids))]
		ids = ids[len(some):]
		var infos []reliable.Info
		err := c.call(ctx, func(ctx context.Context) (err error) {
			infos, err = c.q.Inspect(ctx, some...)
			return err
		})
		if err != nil {
			return err
		}
		for i := range infos {
			if infos[i].Place != reliable.Place(c.filter.place) {
				continue // it has left meanwhile
			}
			if err := writeJSONLine(to, newJobJSON(&infos[i], true)); err != nil {
				return err
			}
			c.done++
		}
		show.update(c.done, "%d jobs exported", c.done)
	}
	return nil
}
