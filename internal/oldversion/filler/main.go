// Command filler leaves a queue behind as an earlier version left it, with jobs in every place: filler URL QUEUE.
//
// IDs say where a job is left, and what is special about it. The program ends without closing anything: leases, sessions
// and holders' names stay. It compiles against every commit of package oldversion. The golden queues in testdata/queues
// were made by it: what it makes may be added to, in a second program, but not changed.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leaseq/leaseq/lease"
	"github.com/leaseq/leaseq/reliable"
)

const leaseLength = time.Second

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "want: filler URL QUEUE")
		os.Exit(2)
	}
	if err := fill(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type filler struct {
	ctx   context.Context
	q     *reliable.Queue
	store *lease.Store
}

func fill(url, queue string) error {
	options, err := redis.ParseURL(url)
	if err != nil {
		return err
	}
	rdb := redis.NewClient(options)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	q, err := reliable.New(rdb, queue, &reliable.QueueOptions{
		Lease: leaseLength, MaxRetries: number(3), MaxExpiries: number(2), PayloadLimit: 1 << 20,
		Backoff: reliable.Backoff{Base: 10 * time.Millisecond, Cap: 50 * time.Millisecond},
	})
	if err != nil {
		return err
	}
	store, err := lease.NewStore(rdb, queue, nil)
	if err != nil {
		return err
	}
	f := &filler{ctx: ctx, q: q, store: store}
	for _, step := range []func() error{f.panicked, f.buried, f.ranOut, f.held, f.due} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func number(n int) *int { return &n }

func (f *filler) enqueue(items ...reliable.Item) error {
	for _, item := range items {
		if item.Kind == "" {
			item.Kind = "order.close"
		}
		if item.Payload == nil {
			item.Payload = []byte(`{"order":"` + item.ID + `"}`)
		}
		if _, err := f.q.Enqueue(f.ctx, item); err != nil {
			return err
		}
	}
	return nil
}

// claim claims just the named jobs.
func (f *filler) claim(ids ...string) (map[string]*reliable.Job, error) {
	jobs := map[string]*reliable.Job{}
	for len(jobs) < len(ids) {
		batch, err := f.q.Claim(f.ctx, len(ids)-len(jobs), &reliable.ClaimOptions{Wait: 10 * time.Second})
		if err != nil {
			return nil, err
		}
		if len(batch.Jobs) == 0 {
			return nil, fmt.Errorf("claimed %d of %q", len(jobs), ids)
		}
		for _, job := range batch.Jobs {
			jobs[job.ID] = job
		}
	}
	for _, id := range ids {
		if jobs[id] == nil {
			return nil, fmt.Errorf("claimed %d jobs, and not %s", len(jobs), id)
		}
	}
	return jobs, nil
}

// panicked has a consumer run a handler that panics.
func (f *filler) panicked() error {
	if err := f.enqueue(reliable.Item{ID: "dead-panicked", MaxRetries: number(0)}); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(f.ctx)
	defer stop()
	h := reliable.HandlerFunc(func(context.Context, *reliable.Job) error { panic("the till is empty") })
	c, err := reliable.NewConsumer(f.q, h, &reliable.ConsumerOptions{
		Hooks: &reliable.Hooks{OnDead: func(context.Context, reliable.Event) { stop() }},
	})
	if err != nil {
		return err
	}
	return c.Run(ctx)
}

// buried leaves jobs in dead, and such that have failed or were given back in due.
func (f *filler) buried() error {
	ids := []string{"dead-buried", "dead-retries", "due-redriven", "due-retried", "due-released"}
	for _, id := range ids {
		item := reliable.Item{ID: id, Headers: map[string]string{"trace": id}}
		if id == "dead-retries" {
			item.MaxRetries = number(0)
		}
		if err := f.enqueue(item); err != nil {
			return err
		}
	}
	jobs, err := f.claim(ids...)
	if err != nil {
		return err
	}
	return errors.Join(
		jobs["dead-buried"].Bury(f.ctx, errors.New("not wanted: 不要")),
		jobs["dead-retries"].Nack(f.ctx, errors.New("no route")),
		jobs["due-redriven"].Bury(f.ctx, errors.New("in its first life")),
		jobs["due-retried"].Nack(f.ctx, reliable.RetryAfter(time.Hour, errors.New("try later"))),
		jobs["due-released"].Nack(f.ctx, reliable.ReleaseAfter(time.Hour, errors.New("not now"))),
	)
}

// ranOut leaves jobs whose lease has run out: one of them dead, one due, and one that fails then and is held.
func (f *filler) ranOut() error {
	ids := []string{"dead-expired", "due-expired", "held-tried"}
	err := f.enqueue(reliable.Item{ID: ids[0], MaxExpiries: number(0)}, reliable.Item{ID: ids[1]}, reliable.Item{ID: ids[2]})
	if err != nil {
		return err
	}
	if _, err := f.claim(ids...); err != nil {
		return err
	}
	for moved := 0; moved < len(ids); {
		got, err := f.store.Expire(f.ctx, 10, true)
		if err != nil {
			return err
		}
		moved += got.Moved()
		time.Sleep(10 * time.Millisecond)
	}
	jobs, err := f.claim("due-expired", "held-tried")
	if err != nil {
		return err
	}
	if err := errors.Join(
		jobs["due-expired"].Nack(f.ctx, reliable.ReleaseAfter(time.Hour, errors.New("not now"))),
		jobs["held-tried"].Nack(f.ctx, reliable.RetryAfter(time.Millisecond, errors.New("once more"))),
	); err != nil {
		return err
	}
	_, err = f.claim("held-tried")
	return err
}

// held leaves jobs in processing whose holder is gone.
func (f *filler) held() error {
	ids := []string{"held-plain", "held-headers", "held-last", "held-cancelled"}
	if err := f.enqueue(
		reliable.Item{ID: "held-plain"},
		reliable.Item{ID: "held-headers", Headers: map[string]string{"trace": "00-4bf9", "empty": ""}},
		reliable.Item{ID: "held-last", MaxExpiries: number(0)},
		reliable.Item{ID: "held-cancelled"},
	); err != nil {
		return err
	}
	if _, err := f.claim(ids...); err != nil {
		return err
	}
	removed, err := f.q.Cancel(f.ctx, "held-cancelled")
	if err == nil && !removed[0].Cancelling {
		err = fmt.Errorf("held-cancelled is not being cancelled: %+v", removed[0])
	}
	return err
}

// due leaves jobs that nobody has touched.
func (f *filler) due() error {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	err := f.enqueue(
		reliable.Item{ID: "due-plain"},
		reliable.Item{ID: "due-headers", Headers: map[string]string{"trace": "00-4bf9", "Grüße": "你好"}},
		reliable.Item{ID: "due-binary", Kind: "bytes", Payload: every},
		reliable.Item{ID: "due-empty", Payload: []byte{}},
		reliable.Item{ID: "due-large", Payload: []byte(strings.Repeat("0123456789abcdef", 150))},
		reliable.Item{ID: "due-größe 42 {🚚}", Kind: "notify.send"},
		reliable.Item{ID: "due-limits", MaxRetries: number(0), MaxExpiries: number(7)},
		reliable.Item{ID: "due-later", Delay: time.Hour},
		reliable.Item{ID: "due-far", Delay: 90 * 24 * time.Hour},
	)
	if err != nil {
		return err
	}
	redriven, err := f.q.Redrive(f.ctx, "due-redriven")
	if err != nil {
		return err
	}
	return redriven[0]
}
