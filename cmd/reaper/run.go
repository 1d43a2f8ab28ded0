package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/leaseq/leaseq/lease"
	"github.com/leaseq/leaseq/reaper"
)

const runHelp = `Looks after queues until it is asked to end: jobs whose leases ran out go back to due, or to dead after too many
times, and sessions of processes that are gone are forgotten.

Without arguments it looks after all queues of the registry, which is read again every 5 s; with arguments after the
named ones only. Any number may run side by side, and beside consumers: there is no leader, and nothing is done twice.

It goes on through every outage of Redis. Files with passwords, authorities and certificates are read again for each new
connection, so that they can be changed under it. What is wrong at the start and only you can change ends it:
credentials, a certificate that cannot be trusted, a server of another kind.

SIGTERM or SIGINT ends it cleanly, which takes at most one read timeout (5 s) where Redis is silent; a second one ends it
at once. Nothing that it does is lost or half done either way.`

const runExample = `  reaper run
  reaper run --redis redis://redis:6379/0 orders mail
  reaper run --redis rediss://redis:6379/0 --user sidecar --password-file /etc/leaseq/password --tls-ca /etc/leaseq/ca.pem
  reaper run --redis unix:///run/redis/redis.sock
  LEASEQ_REDIS='redis://s1:26379/0?master_name=main&password=secret&addr=s2:26379&addr=s3:26379' reaper run --log-format json
  LEASEQ_REDIS='rediss://app:secret@cluster.internal:6379?cluster=true' reaper run`

// runCommand is `reaper run`.
type runCommand struct {
	app        *App
	connection connectionFlags
	log        logFlags
	batch      int

	queues   []string // nil: all
	endpoint *endpoint
	rdb      redis.UniversalClient
	logger   *slog.Logger
	advisor  *advisor
	reaper   *reaper.Reaper
}

func newRunCommand(a *App) *cobra.Command { return (&runCommand{app: a}).command() }

func (c *runCommand) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "run [queue ...]",
		Short:   "Put back the jobs of workers that are gone, until asked to end",
		Long:    runHelp,
		Example: runExample,
		PreRunE: func(_ *cobra.Command, args []string) error { return c.prepare(args) },
		RunE:    func(cmd *cobra.Command, _ []string) error { return c.run(cmd.Context()) },
	}
	flags := cmd.Flags()
	c.connection.add(flags)
	flags.IntVar(&c.batch, "batch", lease.DefaultBatch, fmt.Sprintf("leases that one call ends at most, 1 to %d; a full batch is followed by the next at once", lease.MaxBatch))
	c.log.add(flags)
	return cmd
}

// prepare checks flags and arguments, and makes everything that contacts nobody.
func (c *runCommand) prepare(args []string) (err error) {
	if len(args) > 0 {
		c.queues = args
	}
	if c.batch < 1 || c.batch > lease.MaxBatch {
		return fmt.Errorf("--batch %d: want 1 to %d", c.batch, lease.MaxBatch)
	}
	if c.logger, err = c.log.logger(c.app.err); err != nil {
		return err
	}
	if c.endpoint, err = c.connection.parse(); err != nil {
		return err
	}
	c.rdb = c.app.open(c.endpoint, false)
	c.advisor = newAdvisor(c.endpoint, c.logger)
	c.reaper, err = reaper.New(c.rdb, &reaper.Options{
		Prefix: c.connection.prefix, Queues: c.queues, Batch: c.batch, Logger: c.logger,
		OnError: func(_ string, err error) { c.advisor.note(err) },
	})
	return err
}

func (c *runCommand) run(asked context.Context) error {
	ctx, end := context.WithCancelCause(asked)
	defer end(nil)
	c.logger.Info("reaper starts", "version", programVersion(), "redis", c.endpoint.told, "prefix", c.connection.prefix, "batch", c.batch)
	for _, warning := range c.endpoint.warnings {
		c.logger.Warn(warning)
	}
	var beside sync.WaitGroup
	beside.Go(func() {
		if err := c.introduce(ctx); err != nil {
			end(err)
		}
	})
	beside.Go(func() {
		<-ctx.Done()
		if asked.Err() != nil {
			c.logger.Info("asked to end: waiting for calls under way", "cause", fmt.Sprint(context.Cause(asked)))
		}
	})
	err := c.reaper.Run(ctx)
	end(err)
	beside.Wait()
	var refused *ExitError
	if errors.As(context.Cause(ctx), &refused) {
		return refused
	}
	if err == nil {
		c.logger.Info("reaper has ended")
	}
	return err
}
