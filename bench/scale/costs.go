package main

import (
	"cmp"
	"slices"
)

// A costsFile is what 'reaper capacity' computes with.
type costsFile struct {
	Command    string       `json:"command"`
	Machine    string       `json:"machine"`
	Payload    int          `json:"payload"` // bytes, with which producers and consumers were measured
	ID         int          `json:"id"`
	Growth     []growthCost `json:"growth"`
	PerKB      float64      `json:"server_us_per_kb"`
	Producers  []spending   `json:"producers"`
	Consumers  []spending   `json:"consumers"`
	Extend     []batchCost  `json:"extend"`
	Payloads   []memoryOf   `json:"memory_by_payload"`
	IDs        []memoryOf   `json:"memory_by_id"`
	Processing float64      `json:"processing_bytes"` // that a job needs more while it is worked on
}

type growthCost struct {
	Due     int     `json:"due"` // jobs
	Enqueue float64 `json:"enqueue_us"`
	Work    float64 `json:"work_us"` // claim and ack
}

type batchCost struct {
	Batch  int     `json:"batch"`
	Server float64 `json:"server_us"` // a job
}

type memoryOf struct {
	Size   int     `json:"size"`
	Beside float64 `json:"bytes_beside_payload"`
}

func newCosts(d *document) *costsFile {
	c := &costsFile{
		Command: d.Command, Machine: d.machine(), Payload: payloadSize, ID: idSize, Growth: d.growth(), PerKB: d.perKB(),
		Producers: d.Producers, Consumers: d.Consumers,
	}
	largest := 0
	for _, one := range d.Processing {
		largest = max(largest, one.Size)
	}
	for _, one := range d.Processing {
		if one.Op == opExtend && one.Size == largest {
			c.Extend = append(c.Extend, batchCost{one.Batch, max(one.CPUPerJob, one.PerJob)})
		}
	}
	for _, j := range d.Jobs {
		if j.ID == idSize {
			c.Payloads = append(c.Payloads, memoryOf{j.Payload, j.Beside})
		}
		if j.Payload == payloadSize {
			c.IDs = append(c.IDs, memoryOf{j.ID, j.Beside})
		}
	}
	sortBySize(c.IDs)
	if n := len(d.Held); n > 0 {
		c.Processing = rounded(d.Held[n-1].Bytes - besideAt(d.Loads, d.Held[n-1].Size))
	}
	return c
}

// growth is how much more the calls of a job cost with more jobs in due than with the fewest: of 50, enqueued
// behind all others, as with one delay for all.
func (d *document) growth() (out []growthCost) {
	for _, size := range sizesOf(d.Due) {
		g := growthCost{Due: size}
		for _, c := range d.Due {
			switch {
			case c.Batch != 50 || c.Size != size:
			case c.Op == opLast:
				g.Enqueue += c.PerJob
			case c.Op == opClaim || c.Op == opAck:
				g.Work += c.PerJob
			}
		}
		out = append(out, g)
	}
	for i := len(out) - 1; i >= 0; i-- {
		out[i].Enqueue = rounded(max(out[i].Enqueue-out[0].Enqueue, 0))
		out[i].Work = rounded(max(out[i].Work-out[0].Work, 0))
	}
	return out
}

// perKB is how much a kB more of payload costs, in µs of the server: enqueue and claim.
func (d *document) perKB() float64 {
	var sizes, costs []float64
	for _, j := range d.Jobs {
		if j.ID != idSize {
			continue
		}
		sum := 0.0
		for _, c := range j.Calls {
			if c.Op == opEnqueue || c.Op == opClaim {
				sum += max(c.CPUPerJob, c.PerJob)
			}
		}
		sizes, costs = append(sizes, float64(j.Payload)/1000), append(costs, sum)
	}
	_, slope := line(sizes, costs)
	return rounded(max(slope, 0))
}

func besideAt(loads []load, size int) float64 {
	for _, l := range loads {
		if l.Size == size {
			return l.Bytes
		}
	}
	return 0
}

func sortBySize(list []memoryOf) {
	slices.SortFunc(list, func(a, b memoryOf) int { return cmp.Compare(a.Size, b.Size) })
}
