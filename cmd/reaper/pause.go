package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/leaseq/leaseq/reliable"
)

const pauseHelp = `Pauses a queue for all its workers: no job is given out any more. Jobs that workers hold go on, and are acked, retried and
extended as ever; producers go on, too. It lasts until --for or --until is over, on the server's clock, or until 'reaper
resume' without them. A queue that is paused already is paused until the new time. A FLUSHALL ends a pause. It may be run
again. The queue must have been used before.

With --json the output is one object: {"queue", "paused", "left_ms"}; left_ms is null where no end is set.`

// pauseCommand pauses a queue, or has it go on.
type pauseCommand struct {
	jobFlags
	length time.Duration
	until  string
	end    time.Time
}

func newPauseCommand(a *App) *cobra.Command {
	c := &pauseCommand{jobFlags: jobFlags{app: a}}
	cmd := c.command(&cobra.Command{
		Use: "pause QUEUE [--for D | --until TIME]", Short: "Have workers start no job of a queue", Args: cobra.ExactArgs(1), Long: pauseHelp,
		Example: `  reaper pause orders
  reaper pause orders --for 10m
  reaper pause orders --until 2027-01-01T06:00:00Z`,
	}, c.check, c.pause)
	cmd.Flags().DurationVar(&c.length, "for", 0, "how long, as 10m")
	cmd.Flags().StringVar(&c.until, "until", "", "until this `time`, as 2027-01-01T06:00:00Z")
	return cmd
}

func newResumeCommand(a *App) *cobra.Command {
	c := &pauseCommand{jobFlags: jobFlags{app: a}}
	return c.command(&cobra.Command{
		Use: "resume QUEUE", Short: "Have a paused queue go on", Args: cobra.ExactArgs(1),
		Long:    `Has a paused queue go on at once. One that is not paused is left as it is. With --json the output is that of 'pause'.`,
		Example: `  reaper resume orders`,
	}, func(cmd *cobra.Command, args []string) error { return c.prepare(cmd, args[0], 0) }, c.resume)
}

func (c *pauseCommand) check(cmd *cobra.Command, args []string) (err error) {
	flags := cmd.Flags()
	switch {
	case flags.Changed("for") && flags.Changed("until"):
		return errors.New("want --for or --until, and not both")
	case flags.Changed("for") && c.length < time.Millisecond:
		return fmt.Errorf("--for %v: want 1ms or more, as 10m", c.length)
	case flags.Changed("until"):
		if c.end, err = time.Parse(time.RFC3339, c.until); err != nil || c.end.Year() < 1970 || c.end.Year() > 2200 {
			return fmt.Errorf("--until %.64q: want a time as 2027-01-01T06:00:00Z", c.until)
		}
	}
	return c.prepare(cmd, args[0], 0)
}

func (c *pauseCommand) pause(ctx context.Context) error {
	if err := c.known(ctx); err != nil {
		return err
	}
	err := c.call(ctx, func(ctx context.Context) error {
		if c.length > 0 {
			return c.q.PauseFor(ctx, c.length)
		}
		return c.q.Pause(ctx, c.end)
	})
	if err != nil {
		return err
	}
	return c.show(ctx)
}

func (c *pauseCommand) resume(ctx context.Context) error {
	if err := c.known(ctx); err != nil {
		return err
	}
	was := false
	err := c.call(ctx, func(ctx context.Context) (err error) {
		was, err = c.q.Resume(ctx)
		return err
	})
	if err != nil {
		return err
	}
	if !was && !c.json {
		fmt.Fprintln(c.app.err, "reaper: it was not paused: nothing has changed")
	}
	return c.show(ctx)
}

// show tells whether the queue is paused, and what waits.
func (c *pauseCommand) show(ctx context.Context) error {
	var stats reliable.Stats
	err := c.call(ctx, func(ctx context.Context) (err error) {
		stats, err = c.q.Stats(ctx)
		return err
	})
	if err != nil {
		return err
	}
	if c.json {
		out := struct {
			Queue  string `json:"queue"`
			Paused bool   `json:"paused"`
			Left   *int64 `json:"left_ms"`
		}{c.queue, stats.Paused, pauseLeft(&stats)}
		return writeJSONLine(c.app.out, out)
	}
	text := "not paused"
	if stats.Paused {
		text = paused(&stats)
	}
	_, err = fmt.Fprintf(c.app.out, "%s  %s; %d jobs are due now, %d in processing\n", c.queue, text, stats.Claimable, stats.Processing)
	return err
}

// paused tells how long a queue is paused.
func paused(s *reliable.Stats) string {
	if s.PauseLeft == 0 {
		return "paused until it is resumed"
	}
	unit := 100 * time.Millisecond
	if s.PauseLeft >= 10*time.Second {
		unit = time.Second
	}
	return "paused for " + length(s.PauseLeft.Round(unit))
}

// pauseLeft is nil where there is no pause, or no end of it.
func pauseLeft(s *reliable.Stats) *int64 {
	if s.PauseLeft == 0 {
		return nil
	}
	return milliseconds(s.PauseLeft)
}
