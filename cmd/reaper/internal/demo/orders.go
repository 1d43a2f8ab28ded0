package demo

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"strings"
	"time"

	"github.com/leaseq/leaseq/reliable"
	"github.com/leaseq/leaseq/testdata"
)

// An order is one of the sample jobs, with what the demonstration's handler does with it.
type order struct {
	ID        string            `json:"id"`
	Kind      string            `json:"kind"`
	DelayMs   int64             `json:"delay_ms"`
	Payload   json.RawMessage   `json:"payload"`
	Headers   map[string]string `json:"headers"`
	Behaviour string            `json:"behaviour"`
}

// What a handler does with a job.
const (
	behavesOK     = "ok"
	failsOnce     = "fail_once"
	behavesSlowly = "slow"
	poisonous     = "poison"
)

// readOrders decodes the sample jobs.
func readOrders() ([]order, error) {
	var all []order
	decoder := json.NewDecoder(bytes.NewReader(testdata.Orders()))
	for {
		var o order
		switch err := decoder.Decode(&o); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, fmt.Errorf("the sample jobs, object %d: %w", len(all)+1, err)
		}
		switch o.Behaviour {
		case behavesOK, failsOnce, behavesSlowly, poisonous:
		default:
			return nil, fmt.Errorf("the sample job %s has the behaviour %q, which nobody knows", o.ID, o.Behaviour)
		}
		all = append(all, o)
	}
}

// item is what is enqueued: the behaviour is none of the job's business.
func (o *order) item() reliable.Item {
	return reliable.Item{
		ID: o.ID, Kind: o.Kind, Payload: o.Payload, Headers: o.Headers, Delay: time.Duration(o.DelayMs) * time.Millisecond,
	}
}

// A pace is how long the pretended work takes: up to the side effect, until that is answered, and after it.
type pace struct{ before, inside, after time.Duration }

func (p pace) whole() time.Duration { return p.before + p.inside + p.after }

// pace follows from the ID, so that every run is the same work.
func (o *order) pace() pace {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(o.ID))
	part := time.Duration(hash.Sum32() % 1000) // of a thousand
	whole := 120*time.Millisecond + 160*time.Millisecond*part/1000
	switch o.Behaviour {
	case behavesSlowly:
		whole = time.Second + time.Second*part/1000
	case failsOnce, poisonous:
		whole = 40 * time.Millisecond
	}
	p := pace{before: whole * 2 / 5, inside: whole * 3 / 10}
	p.after = whole - p.before - p.inside
	return p
}

// effect names the side effect of the job, of which each has one: that of a "refund.pay" is "pay".
func (o *order) effect() string {
	_, verb, _ := strings.Cut(o.Kind, ".")
	return verb
}

// left is how long the job will go on that was started at a time, if nothing comes between.
func (o *order) left(started time.Time) time.Duration {
	return o.pace().whole() - time.Since(started)
}
