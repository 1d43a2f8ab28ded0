package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/leaseq/leaseq/lease"
)

// A survey is what there is of a queue.
type survey struct {
	queue      string
	registered bool
	partitions map[int]*part
	strangers  []string // keys with the queue's tag that are not ours, not too many of them
	sum        part
}

// A part is what there is of one partition, or of all.
type part struct {
	lease.Stats
	keys    int64 // fixed ones
	records int64 // idempotency records
}

func (s *survey) empty() bool {
	return !s.registered && s.sum.keys+s.sum.records == 0 && len(s.strangers) == 0
}

// jobs is how many jobs there are, without those in processing where these are not to go.
func (s *survey) jobs(running bool) int64 {
	n := s.sum.Due + s.sum.Dead + s.sum.Done
	if running {
		n += s.sum.Processing
	}
	return n
}

// survey looks at everything of the queue, and writes nothing.
func (c *deleteCommand) survey(ctx context.Context) (*survey, error) {
	s := &survey{queue: c.queue, partitions: map[int]*part{0: {}}}
	names, err := c.known(ctx)
	if err != nil {
		return nil, err
	}
	s.registered = slices.Contains(names, c.queue)
	seen := map[string]bool{} // fixed keys: SCAN may tell of one twice
	err = c.find(ctx, func(page []lease.Found) error {
		s.count(page, seen)
		return ctx.Err()
	})
	if err != nil {
		return nil, err
	}
	s.sum.SinceSweep = -1
	for partition, p := range s.partitions {
		if p.Stats, err = c.stats(ctx, partition); err != nil {
			return nil, err
		}
		s.sum.Due, s.sum.Processing, s.sum.Dead, s.sum.Done = s.sum.Due+p.Due, s.sum.Processing+p.Processing, s.sum.Dead+p.Dead, s.sum.Done+p.Done
		s.sum.Sessions += p.Sessions
		s.sum.keys, s.sum.records = s.sum.keys+p.keys, s.sum.records+p.records
		if p.SinceSweep >= 0 && (s.sum.SinceSweep < 0 || p.SinceSweep < s.sum.SinceSweep) {
			s.sum.SinceSweep = p.SinceSweep
		}
	}
	return s, nil
}

// count books found keys. Records may be counted twice where the server's table grows or shrinks meanwhile.
func (s *survey) count(page []lease.Found, seen map[string]bool) {
	for i := range page {
		f := &page[i]
		if !f.Fixed() && !f.Record() {
			if len(s.strangers) < maxNames && !slices.Contains(s.strangers, f.Key) {
				s.strangers = append(s.strangers, f.Key)
			}
			continue
		}
		p := s.partitions[f.Partition]
		if p == nil {
			p = &part{}
			s.partitions[f.Partition] = p
		}
		switch {
		case f.Record():
			p.records++
		case !seen[f.Key]:
			seen[f.Key] = true
			p.keys++
		}
	}
}

// known reads the registry.
func (c *deleteCommand) known(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	names, err := lease.Queues(ctx, c.rdb, c.connection.prefix)
	slices.Sort(names)
	return names, c.failed(err)
}

// find looks through all keys of the server for those of the queue. It takes as long as there are keys: the client's own
// timeouts bound each step.
func (c *deleteCommand) find(ctx context.Context, each func([]lease.Found) error) error {
	var own error
	err := lease.Find(ctx, c.rdb, c.connection.prefix, c.queue, func(page []lease.Found) error {
		own = each(page)
		return own
	})
	if own != nil {
		return own
	}
	return c.failed(err)
}

func (c *deleteCommand) store(partition int) (*lease.Store, error) {
	return lease.NewStore(c.rdb, c.queue, &lease.StoreOptions{Prefix: c.connection.prefix, Partition: partition})
}

// stats reads one partition.
func (c *deleteCommand) stats(ctx context.Context, partition int) (lease.Stats, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	store, err := c.store(partition)
	if err != nil {
		return lease.Stats{}, err
	}
	defer store.Close(ctx) // nothing is open: it is only read
	stats, err := store.Stats(ctx)
	return stats, c.failed(err)
}

// print shows what there is.
func (s *survey) print(w io.Writer, told, prefix string) error {
	t := newTable("partition", "due", "processing", "dead", "done", "sessions", "idempotency records", "keys")
	for _, partition := range slices.Sorted(maps.Keys(s.partitions)) {
		p := s.partitions[partition]
		t.AppendRow(table.Row{partition, p.Due, p.Processing, p.Dead, p.Done, p.Sessions, p.records, p.keys})
	}
	registered := "its name is in the registry"
	if !s.registered {
		registered = "its name is not in the registry"
	}
	_, err := fmt.Fprintf(w, "Queue %s at %s under prefix %s; %s.\n\n%s\n", s.queue, told, prefix, registered, t.Render())
	if len(s.strangers) > 0 {
		_, more := fmt.Fprintf(w, "Not ours, and to stay: %s\n", strings.Join(s.strangers, ", "))
		err = errors.Join(err, more)
	}
	return err
}

// swept reports whether a sweeper looks after the queue: each does so at least every second.
func (s *survey) swept() bool { return s.sum.SinceSweep >= 0 && s.sum.SinceSweep < sweeperGone }

// sweeperGone is how long ago the last sweep is when the sweeper has surely ended.
const sweeperGone = 2500 * time.Millisecond
