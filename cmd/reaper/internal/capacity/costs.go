package capacity

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
)

// measured is what `make bench-scale` wrote.
//
//go:embed costs.json
var measured []byte

// Costs are what was measured. All times are CPU in µs, all sizes bytes.
type Costs struct {
	Command string   `json:"command"` // that measured
	Machine string   `json:"machine"`
	Payload int      `json:"payload"` // of the jobs of Producers and Consumers
	ID      int      `json:"id"`      // of the same
	Growth  []Growth `json:"growth"`  // by growing numbers of jobs
	PerKB   float64  `json:"server_us_per_kb"`

	Producers []Spending  `json:"producers"`
	Consumers []Spending  `json:"consumers"`
	Extend    []BatchCost `json:"extend"`

	Payloads   []Memory `json:"memory_by_payload"` // with the measured ID
	IDs        []Memory `json:"memory_by_id"`      // with the measured payload
	Processing float64  `json:"processing_bytes"`  // that a job needs more while it is worked on
}

// A Growth is how much more a job costs the server with so many jobs in due than with the fewest that were measured.
type Growth struct {
	Due     int     `json:"due"`
	Enqueue float64 `json:"enqueue_us"`
	Work    float64 `json:"work_us"` // claim and ack
}

// A Spending is what a job costs producers, or consumers, and the server.
type Spending struct {
	Batch       int     `json:"batch,omitempty"`       // producers: jobs a call
	Concurrency int     `json:"concurrency,omitempty"` // consumers: handlers at a time, which do nothing
	Jobs        int     `json:"jobs"`
	Server      float64 `json:"server_us"`
	Client      float64 `json:"client_us"`
	Requests    float64 `json:"requests"` // round trips a job
	In          float64 `json:"in_bytes"` // to the server
	Out         float64 `json:"out_bytes"`
}

// A BatchCost is what a job costs the server in a call of so many.
type BatchCost struct {
	Batch  int     `json:"batch"`
	Server float64 `json:"server_us"`
}

// A Memory is what a job that waits needs beside its payload.
type Memory struct {
	Size   int     `json:"size"` // of the payload, or of the ID
	Beside float64 `json:"bytes_beside_payload"`
}

// Measured returns the costs that the program has inside.
func Measured() (*Costs, error) { return Parse(measured) }

// Largest is how many jobs the largest queue had that was measured.
func (c *Costs) Largest() int { return c.Growth[len(c.Growth)-1].Due }

// Parse reads costs as `make bench-scale` writes them, and refuses what cannot be computed with.
func Parse(text []byte) (*Costs, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	c := new(Costs)
	if err := decoder.Decode(c); err != nil {
		return nil, fmt.Errorf("costs: %w", err)
	}
	return c, c.check()
}

func (c *Costs) check() error {
	var errs []error
	need := func(ok bool, what string) {
		if !ok {
			errs = append(errs, errors.New("costs: "+what))
		}
	}
	need(c.Command != "" && c.Machine != "", "no command or no machine")
	need(len(c.Growth) > 0, "no growth")
	for i, g := range c.Growth {
		need(g.Due > 0 && g.Enqueue >= 0 && g.Work >= 0 && (i == 0 || g.Due > c.Growth[i-1].Due), "growth: want growing numbers of jobs, and costs of 0 or more")
	}
	need(c.PerKB >= 0 && c.Processing >= 0, "a negative cost of kB or of processing")
	need(len(c.Producers) > 0 && len(c.Consumers) > 0 && len(c.Extend) > 0, "no producers, consumers or extends")
	need(len(c.Payloads) > 0 && len(c.IDs) > 0, "no memory by payload or by ID")
	for i, s := range c.Producers {
		need(s.Batch > 0 && s.sound() && (i == 0 || s.Batch > c.Producers[i-1].Batch), "producers: want growing batches and costs above 0")
	}
	for i, s := range c.Consumers {
		need(s.Concurrency > 0 && s.sound() && (i == 0 || s.Concurrency > c.Consumers[i-1].Concurrency && s.Requests < c.Consumers[i-1].Requests),
			"consumers: want growing concurrency, fewer round trips each time, and costs above 0")
	}
	for i, e := range c.Extend {
		need(e.Batch > 0 && e.Server > 0 && (i == 0 || e.Batch > c.Extend[i-1].Batch), "extend: want growing batches and costs above 0")
	}
	for _, list := range [][]Memory{c.Payloads, c.IDs} {
		for i, m := range list {
			need(m.Size > 0 && m.Beside > 0 && (i == 0 || m.Size > list[i-1].Size), "memory: want growing sizes, and bytes above 0")
		}
	}
	return errors.Join(errs...)
}

func (s *Spending) sound() bool {
	return s.Server > 0 && s.Client > 0 && s.Requests > 0 && s.In > 0 && s.Out > 0
}
