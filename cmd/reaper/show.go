package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

	"github.com/leaseq/leaseq/reliable"
)

const showHelp = `Shows everything of one job: where it is and since or until when, who holds it and for how long, its counters and limits,
headers, last errors with times, attempts and holders, the stack of a panic, and the payload.

A payload or result that is no text is shown as hexadecimal, its first 4 KiB; with --payload or --result nothing but its bytes
goes to standard output, exactly as they are. Of a job in done only its result is kept, if it has one. With --json the output is one object, with the fields of a line of 'reaper export'.`

const showExample = `  reaper show refunds refund:10086
  reaper show refunds refund:10086 --payload > payload.json
  reaper show refunds refund:10086 --json | jq '.errors'`

// showCommand is `reaper show`.
type showCommand struct {
	jobFlags
	id      string
	payload bool
	result  bool
}

func newShowCommand(a *App) *cobra.Command {
	c := &showCommand{jobFlags: jobFlags{app: a}}
	cmd := &cobra.Command{Use: "show QUEUE ID", Short: "Show everything of one job", Long: showHelp, Example: showExample, Args: cobra.ExactArgs(2)}
	cmd.Flags().BoolVar(&c.payload, "payload", false, "print the payload's bytes and nothing else")
	cmd.Flags().BoolVar(&c.result, "result", false, "print the result's bytes and nothing else")
	return c.command(cmd, func(cmd *cobra.Command, args []string) error {
		if c.payload && c.json || c.result && (c.json || c.payload) {
			return errors.New("--payload, --result and --json: want one of them")
		}
		c.id = args[1]
		return c.prepare(cmd, args[0], 0)
	}, c.run)
}

func (c *showCommand) run(ctx context.Context) error {
	var info reliable.Info
	err := c.call(ctx, func(ctx context.Context) (err error) {
		info, err = c.q.Get(ctx, c.id)
		return err
	})
	if errors.Is(err, reliable.ErrGone) {
		if err := c.known(ctx); err != nil {
			return err
		}
		return fmt.Errorf("queue %s has no job %s: it was never enqueued, was acked, or was removed", c.queue, c.id)
	}
	switch {
	case err != nil:
		return err
	case c.payload:
		_, err = c.app.out.Write(info.Payload)
		return err
	case c.result && info.Place != reliable.Done:
		return fmt.Errorf("job %s is in %s, and not done: it has no result", c.id, info.Place)
	case c.result:
		_, err = c.app.out.Write(info.Result)
		return err
	case c.json:
		return writeJSONLine(c.app.out, newJobJSON(&info, true))
	}
	if info.Place == reliable.Done {
		return showDone(c.app.out, &info)
	}
	return showJob(c.app.out, &info)
}

// showDone shows what is kept of a finished job.
func showDone(w io.Writer, info *reliable.Info) error {
	t := newTable("job", plain(info.ID))
	t.SetColumnConfigs([]table.ColumnConfig{{Number: 1, Align: text.AlignLeft}, {Number: 2, Align: text.AlignLeft, AlignHeader: text.AlignLeft}})
	t.AppendRow(table.Row{"place", fmt.Sprintf("done since %s (%s)", clock(info.At), when(info))})
	t.AppendRow(table.Row{"result", fmt.Sprintf("%d bytes", len(info.Result))})
	_, err := fmt.Fprintf(w, "%s\n", t.Render())
	if err == nil && len(info.Result) > 0 {
		_, err = fmt.Fprintf(w, "\n%s\n", shownBytes(info.Result, false))
	}
	return err
}

func showJob(w io.Writer, info *reliable.Info) error {
	t := newTable("job", plain(info.ID))
	t.SetColumnConfigs([]table.ColumnConfig{{Number: 1, Align: text.AlignLeft}, {Number: 2, Align: text.AlignLeft, AlignHeader: text.AlignLeft}})
	row := func(name, format string, args ...any) { t.AppendRow(table.Row{name, fmt.Sprintf(format, args...)}) }
	row("kind", "%s", kindOf(info))
	switch info.Place {
	case reliable.Processing:
		row("place", "processing by %s, lease left %s (fence %d)", plain(holderOf(info)), when(info), info.Fence)
	case reliable.Dead:
		row("place", "dead since %s (%s)", clock(info.At), when(info))
		row("class", "%s", info.Class)
	default:
		row("place", "%s %s (%s)", info.Place, clock(info.At), when(info))
	}
	if info.Undecoded == nil {
		row("enqueued", "%s", clock(info.EnqueuedAt))
	} else {
		row("undecodable", "%s", plain(info.Undecoded.Error()))
	}
	row("counters", "%d failures, %d expiries, %d redrives", info.Failures, info.Expiries, info.Redrives)
	if info.Place == reliable.Due || info.Place == reliable.Processing {
		row("attempt", "%d", info.Attempt)
	}
	if limits := ownLimits(info); limits != "" {
		row("own limits", "%s", limits)
	}
	for _, name := range slices.Sorted(maps.Keys(info.Headers)) {
		row("header", "%s=%s", plain(name), plain(strings.ToValidUTF8(info.Headers[name], "\ufffd")))
	}
	for _, f := range info.Errors {
		row("error", "%s  attempt %d  %s: %s", clock(f.At), f.Attempt, plain(f.Holder), plain(f.Reason))
	}
	row("payload", "%d bytes", info.PayloadSize)
	_, err := fmt.Fprintf(w, "%s\n", t.Render())
	if err == nil && len(info.Payload) > 0 {
		_, err = fmt.Fprintf(w, "\n%s\n", shownBytes(info.Payload, info.Undecoded != nil))
	}
	if err == nil && info.Stack != "" {
		_, err = fmt.Fprintf(w, "\nStack of the panic\n%s\n", plainLines(info.Stack))
	}
	return err
}

func ownLimits(info *reliable.Info) string {
	var parts []string
	if info.MaxRetries != nil {
		parts = append(parts, "max retries "+strconv.Itoa(*info.MaxRetries))
	}
	if info.MaxExpiries != nil {
		parts = append(parts, "max expiries "+strconv.Itoa(*info.MaxExpiries))
	}
	if !info.NotAfter.IsZero() {
		parts = append(parts, "not after "+clock(info.NotAfter))
	}
	return strings.Join(parts, ", ")
}

// mostShown is how much of a payload that is no text is shown.
const mostShown = 4 << 10

// shownBytes shows bytes as a text, where they are one and raw is not said.
func shownBytes(bytes []byte, raw bool) string {
	if utf8.Valid(bytes) && !raw {
		return plainLines(string(bytes))
	}
	more := ""
	if len(bytes) > mostShown {
		bytes, more = bytes[:mostShown], "\n…"
	}
	return fmt.Sprintf("% x", bytes) + more
}
