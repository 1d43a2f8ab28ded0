package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leaseq/leaseq/lease"
)

// How the server is asked who it is, until it answers.
const (
	askEvery = time.Second
	askLoud  = 30 // tries between two complaints
	maxNames = 20 // queue names in one line of the log
)

// introduce says which server this is and what is going to be swept, as soon as the server answers. Sweeping does not
// wait for it. The only error is a refusal of the credentials before the first answer, which nothing but a change of the
// configuration can heal.
func (c *runCommand) introduce(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for try := 0; ; try++ {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		facts, err := look(ctx, c.rdb)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			c.sayServer(facts)
			c.sayQueues(ctx)
			return nil
		case redis.IsAuthError(err):
			return &ExitError{Code: exitRedis, Err: fmt.Errorf("Redis at %s refuses the credentials: %w (want user and password in the URL, "+
				"as redis://user:password@host:6379/0)", c.endpoint.told, err)}
		case try%askLoud == 0:
			c.logger.Warn("Redis does not answer yet, and is asked again", "redis", c.endpoint.told, "error", err)
		}
		timer.Reset(askEvery)
	}
}

func (c *runCommand) sayServer(f facts) {
	c.logger.Info("connected", "redis", c.endpoint.told, "server", f.server, "version", f.version, "mode", f.mode, "maxmemory_policy", f.policy)
	switch {
	case f.policy == "":
		c.logger.Warn("could not check maxmemory-policy: make sure that it is noeviction, or Redis deletes jobs when its memory is full", "error", f.policyErr)
	case f.policy != safePolicy:
		c.logger.Warn("maxmemory-policy is not noeviction: Redis deletes jobs when its memory is full; set it to noeviction", "maxmemory_policy", f.policy)
	}
	if f.tooOld() {
		c.logger.Warn("this server is too old: want Redis 6.2 or newer, or Valkey", "version", f.version)
	}
	if f.mode == "cluster" && c.endpoint.cluster == nil {
		c.logger.Warn("this server is a node of a Redis Cluster: add ?cluster=true to the URL, or most queues cannot be reached", "redis", c.endpoint.told)
	}
}

func (c *runCommand) sayQueues(ctx context.Context) {
	known, err := lease.Queues(ctx, c.rdb, c.connection.prefix)
	if err != nil {
		return // the reaper tells of a registry that cannot be read
	}
	slices.Sort(known)
	if c.queues == nil {
		c.logger.Info("all queues of the registry are looked after, also those that come later", "now", len(known), "queues", known[:min(len(known), maxNames)])
		return
	}
	c.logger.Info("the named queues are looked after", "queues", c.queues)
	for _, queue := range c.queues {
		if !slices.Contains(known, queue) {
			c.logger.Warn("a named queue is not in the registry: nobody has used it yet under this prefix", "queue", queue, "prefix", c.connection.prefix)
		}
	}
}
