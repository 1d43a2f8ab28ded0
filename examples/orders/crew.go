package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"time"

	"github.com/leaseq/leaseq/internal/childproc"
)

// A crew is the worker processes. It is used by one goroutine at a time.
type crew struct {
	settings settings
	workers  []*childproc.Process
	killed   int
}

func (c *crew) start() error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	s := c.settings
	p, err := childproc.Start(exec.Command(program, "-worker", "-redis", s.redis, "-postgres", s.postgres, "-queue", s.queue, "-work", s.work.String()))
	if err == nil {
		c.workers = append(c.workers, p)
	}
	return err
}

// killOne kills a worker with SIGKILL in the middle of what it does, and starts another.
func (c *crew) killOne() error {
	i := rand.IntN(len(c.workers))
	victim := c.workers[i]
	if victim.Ended() {
		return fmt.Errorf("a worker has ended by itself: %s: %s", victim.How(), victim.Said())
	}
	c.workers = append(c.workers[:i], c.workers[i+1:]...)
	if err := victim.Kill(); err != nil {
		return err
	}
	c.killed++
	return c.start()
}

// stop asks all workers to end, and kills those that do not within 30 s, which is an error.
func (c *crew) stop() error {
	var errs []error
	for _, p := range c.workers {
		errs = append(errs, p.Terminate())
	}
	timeout := time.After(30 * time.Second)
	for _, p := range c.workers {
		select {
		case <-p.Done():
			// A worker that was started just now does not listen for the signal yet, and has taken nothing: it ends by it.
			if !p.Success() && p.How() != "signal: terminated" {
				errs = append(errs, fmt.Errorf("a worker ended with %s: %s", p.How(), p.Said()))
			}
		case <-timeout:
			errs = append(errs, errors.New("a worker did not end"), p.Kill())
		}
	}
	c.workers = nil
	return errors.Join(errs...)
}
