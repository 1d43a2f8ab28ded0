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
	askBound = 10 * time.Second // one try
	askLoud  = time.Minute      // between two complaints
	maxNames = 20               // queue names in one line of the log
)

// introduce says which server this is and what is going to be swept, as soon as the server answers. Sweeping does not
// wait for it. The only errors are those before the first answer which nothing but a change of the configuration can heal:
// wrong credentials, a certificate that cannot be trusted, a server of another kind.
func (c *runCommand) introduce(ctx context.Context) error {
	rdb := c.endpoint.open(true) // of its own: the other one tries so often that a first complaint would take minutes
	defer rdb.Close()
	timer := time.NewTimer(0)
	defer timer.Stop()
	var loud time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		facts, err := lookOnce(ctx, rdb)
		if err == nil && !c.endpoint.connected.Load() {
			err = facts.denied // it was not INFO that was refused, but the connection
		}
		if err == nil && facts.mode == "sentinel" && c.endpoint.single != nil {
			return &ExitError{Code: exitRedis, Err: fmt.Errorf("the server at %s is a Sentinel: add ?master_name=… to the URL, with the name that it knows the primary by", c.endpoint.told)}
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			c.sayServer(facts)
			c.sayQueues(ctx)
			return nil
		}
		err = c.endpoint.cause(err)
		d := c.endpoint.diagnose(err)
		if d.final {
			return c.endpoint.failed(err)
		}
		if time.Since(loud) >= askLoud {
			loud = time.Now()
			c.logger.Warn("Redis does not answer yet, and is asked again", attributes(c.endpoint, d, err)...)
		}
		timer.Reset(askEvery)
	}
}

func lookOnce(ctx context.Context, rdb redis.UniversalClient) (facts, error) {
	ctx, cancel := context.WithTimeout(ctx, askBound)
	defer cancel()
	return look(ctx, rdb)
}

// attributes of a line about an error; advice only where there is some.
func attributes(e *endpoint, d diagnosis, err error) []any {
	all := []any{"redis", e.told, "error", err}
	if d.advice != "" {
		all = append(all, "problem", d.problem, "advice", d.advice)
	}
	return all
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
	if f.role == "slave" {
		c.logger.Warn("this server is a replica, which takes no writes: name the primary, or let Sentinels name it with ?master_name=…", "redis", c.endpoint.told)
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
