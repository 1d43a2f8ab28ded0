package main

import (
	"context"
	"errors"
	"slices"
)

// A job size is what jobs of one size need, in Redis and of the server.
type jobSize struct {
	Payload int     `json:"payload"`
	ID      int     `json:"id"`
	Jobs    int     `json:"jobs"`
	Beside  float64 `json:"bytes_beside_payload"`
	Calls   []cost  `json:"calls"` // of 50 jobs
}

// growJobs measures jobs of several sizes, each on a server of its own.
func (r *runner) growJobs(ctx context.Context) error {
	for _, payload := range r.plan.payloads {
		if err := r.jobsOf(ctx, payload, idSize); err != nil {
			return err
		}
	}
	for _, id := range r.plan.ids {
		if id == idSize {
			continue // it was among the payloads
		}
		if err := r.jobsOf(ctx, payloadSize, id); err != nil {
			return err
		}
	}
	return nil
}

func (r *runner) jobsOf(ctx context.Context, payload, id int) (err error) {
	c, err := newCrowd(ctx, payload, idOf(id))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close(ctx)) }()
	empty, err := c.server.number(ctx, "memory", "used_memory")
	if err != nil {
		return err
	}
	j := jobSize{Payload: payload, ID: id, Jobs: max(min(r.plan.jobs, r.plan.bytes/max(payload, 1)), 1000)}
	if _, err := c.fillUp(ctx, j.Jobs, (*crowd).fill); err != nil {
		return err
	}
	used, err := c.server.number(ctx, "memory", "used_memory")
	if err != nil {
		return err
	}
	j.Beside = rounded((used-empty)/float64(j.Jobs) - float64(payload))
	p, err := c.duePlace()
	if err != nil {
		return err
	}
	if j.Calls, err = r.measure(ctx, c, p, j.Jobs, []int{50}); err != nil {
		return err
	}
	j.Calls = slices.DeleteFunc(j.Calls, func(c cost) bool { return !slices.Contains(ops, c.Op) })
	r.document.Jobs = append(r.document.Jobs, j)
	r.say("  payload %5d, ID %3d: %.0f bytes beside the payload", payload, id, j.Beside)
	return nil
}
