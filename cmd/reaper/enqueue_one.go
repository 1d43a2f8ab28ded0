package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/leaseq/leaseq/reliable"
)

// The JSON of `reaper enqueue --json` for one job.
type enqueuedJSON struct {
	Queue   string         `json:"queue"`
	ID      string         `json:"id"`
	Created bool           `json:"created"`
	Place   reliable.Place `json:"place,omitempty"` // of the job that was there already

	Replaced bool `json:"replaced,omitempty"` // created in the place of another one
}

// runOne enqueues the job of the flags.
func (c *enqueueCommand) runOne(ctx context.Context) error {
	source := payloadSource{file: c.file, in: c.in, limit: c.payloadLimit, nothing: "nothing was enqueued"}
	if c.file == "" {
		source.argument = c.args[0]
	}
	payload, err := source.read(ctx)
	if err != nil {
		return err
	}
	c.item.Payload = payload
	if c.item.ID == "" {
		c.item.ID = reliable.NewID()
	}
	if err := c.q.Check(c.item); err != nil || c.dryRun {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	made, err := c.q.Enqueue(bounded, c.item)
	truth := newTruths(c.timeout)
	defer truth.cancel()
	err = truth.of(err)
	var duplicate *reliable.DuplicateError
	if err != nil && !errors.As(err, &duplicate) {
		return c.oneFailed(ctx, err)
	}
	switch {
	case c.json:
		out := enqueuedJSON{Queue: c.queue, ID: made.ID, Created: duplicate == nil, Replaced: made.Replaced}
		if duplicate != nil {
			out.Place = duplicate.Place
		}
		err = json.NewEncoder(c.app.out).Encode(out)
	case duplicate == nil || c.acceptDuplicate:
		_, err = fmt.Fprintln(c.app.out, made.ID)
	default:
		err = nil
	}
	if duplicate != nil && !c.acceptDuplicate {
		return errors.Join(fmt.Errorf("queue %s: %w (no failure with --accept-duplicate)", c.queue, duplicate), err)
	}
	return err
}

// oneFailed tells of a job that was not made, or perhaps was.
func (c *enqueueCommand) oneFailed(ctx context.Context, err error) error {
	switch {
	case isUnknown(err):
		return &ExitError{Code: exitRedis, Err: fmt.Errorf("queue %s: it is not known whether job %s was made: with --id %s the same may be tried again, "+
			"and makes no second job while it is there: %w", c.queue, c.item.ID, c.item.ID, err)}
	case ctx.Err() != nil:
		return fmt.Errorf("queue %s: nothing was enqueued: %w", c.queue, context.Cause(ctx))
	case isRefusal(err):
		return fmt.Errorf("queue %s: nothing was enqueued: %w", c.queue, err)
	}
	return fmt.Errorf("queue %s: nothing was enqueued: %w", c.queue, c.endpoint.failed(err))
}
