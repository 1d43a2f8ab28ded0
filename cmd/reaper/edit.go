package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/leaseq/leaseq/reliable"
)

const editHelp = `Gives a job that is due or dead another payload: the third argument, the bytes of --file, or with - those of standard input;
nothing is added to it or taken from it. --header sets all headers anew, --no-headers leaves none. ID, kind, enqueue time,
counters, limits and last errors stay.

--redrive puts a dead job back to due in the same step, with fresh counters: no worker gets it as it was. Where somebody else
has changed the job meanwhile, or a worker has it, nothing is done, and the exit code is 1.`

const editExample = `  reaper edit refunds refund:10086 '{"amount":1250}' --redrive
  reaper edit refunds refund:10086 --file payload.json
  reaper edit refunds refund:10086 --header tenant=acme`

// editCommand is `reaper edit`.
type editCommand struct {
	jobFlags
	id           string
	source       payloadSource
	payload      bool // there is one
	headers      []string
	noHeaders    bool
	redrive      bool
	payloadLimit int

	edit reliable.Edit
}

func newEditCommand(a *App) *cobra.Command {
	c := &editCommand{jobFlags: jobFlags{app: a}}
	cmd := &cobra.Command{
		Use: "edit QUEUE ID [PAYLOAD | --file FILE | -]", Short: "Change a due or dead job's payload, and redrive it", Long: editHelp, Example: editExample,
		Args: cobra.RangeArgs(2, 3),
	}
	flags := cmd.Flags()
	flags.StringVar(&c.source.file, "file", "", "`file` whose bytes are the payload")
	flags.StringArrayVar(&c.headers, "header", nil, "`name=value`, instead of all headers that the job has; may be given several times")
	flags.BoolVar(&c.noHeaders, "no-headers", false, "take all headers away")
	flags.BoolVar(&c.redrive, "redrive", false, "put the dead job back to due in the same step")
	flags.IntVar(&c.payloadLimit, "payload-limit", reliable.DefaultPayloadLimit, "`bytes` that a payload may have, at most 256 MiB; a smaller limit of the queue holds too")
	return c.command(cmd, c.check, c.run)
}

func (c *editCommand) check(cmd *cobra.Command, args []string) error {
	c.id = args[1]
	c.payload = len(args) > 2 || c.source.file != ""
	switch {
	case len(args) > 2 && c.source.file != "":
		return errors.New("want one of a payload and --file")
	case len(c.headers) > 0 && c.noHeaders:
		return errors.New("--header and --no-headers: want one of them")
	case !c.payload && len(c.headers) == 0 && !c.noHeaders:
		return errors.New("there is nothing to change: want a payload as an argument ('' is empty), --file FILE, - for standard input, --header or --no-headers; " +
			"'reaper redrive' puts a job back as it is")
	case c.payloadLimit < 1:
		return fmt.Errorf("--payload-limit %d: want 1 or more", c.payloadLimit)
	}
	if len(args) > 2 {
		c.source.argument = args[2]
	}
	if c.noHeaders {
		c.edit.Headers = map[string]string{}
	}
	for _, header := range c.headers {
		name, value, ok := strings.Cut(header, "=")
		if _, twice := c.edit.Headers[name]; !ok || name == "" || twice {
			return fmt.Errorf("--header %q: want name=value, each name once", header)
		}
		c.edit.Headers = with(c.edit.Headers, name, value)
	}
	return c.prepare(cmd, args[0], c.payloadLimit)
}

// The JSON of `reaper edit --json`.
type editJSON struct {
	Queue    string `json:"queue"`
	ID       string `json:"id"`
	Redriven bool   `json:"redriven"`
}

func (c *editCommand) run(ctx context.Context) error {
	if c.payload {
		c.source.in, c.source.limit, c.source.nothing = c.in, c.payloadLimit, "nothing was changed"
		payload, err := c.source.read(ctx)
		if err != nil {
			return err
		}
		c.edit.Payload = append([]byte{}, payload...) // not nil, which would leave it as it is
	}
	err := c.call(ctx, func(ctx context.Context) error {
		if c.redrive {
			return c.q.EditAndRedrive(ctx, c.id, c.edit)
		}
		return c.q.Edit(ctx, c.id, c.edit)
	})
	if err != nil {
		if errors.Is(err, reliable.ErrGone) {
			err = errors.Join(fmt.Errorf("there is no job %s", c.id), c.known(ctx))
		}
		return fmt.Errorf("queue %s: nothing was changed: %w", c.queue, err)
	}
	if c.json {
		return writeJSONLine(c.app.out, editJSON{c.queue, c.id, c.redrive})
	}
	done := "edited"
	if c.redrive {
		done = "edited and redriven"
	}
	_, err = fmt.Fprintf(c.app.out, "%s  %s\n", plain(c.id), done)
	return err
}
