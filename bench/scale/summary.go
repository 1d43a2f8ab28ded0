package main

import (
	"math"
	"slices"
	"time"
)

// A cost is what one kind of call has cost, in µs a call.
type cost struct {
	Op    string `json:"op"`
	Batch int    `json:"batch"`
	Size  int    `json:"size"` // jobs in the place that grows
	Calls int    `json:"calls"`

	Server    float64 `json:"server_us"`      // median, by the server's clock
	Mean      float64 `json:"server_mean_us"` // of the same
	P99       float64 `json:"server_p99_us"`
	Max       float64 `json:"server_max_us"`
	Longest   float64 `json:"own_max_us"` // the longest that a call took of the server itself: the limit is for this
	CPU       float64 `json:"cpu_us"`     // median of what the server's thread has run, reading and writing included; 0: not known
	Client    float64 `json:"client_us"`  // median, with the round trip
	PerJob    float64 `json:"server_us_per_job"`
	CPUPerJob float64 `json:"cpu_us_per_job"`
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

// summarise makes one cost of samples; there is at least one.
func summarise(key callKey, size int, samples []sample) cost {
	server, client, ran := make([]float64, len(samples)), make([]float64, len(samples)), make([]float64, len(samples))
	c := cost{Op: key.op, Batch: key.batch, Size: size, Calls: len(samples)}
	for i := range samples {
		s := &samples[i]
		server[i], client[i], ran[i] = micros(s.server), micros(s.client), micros(s.ran)
		c.Longest = max(c.Longest, micros(s.own()))
	}
	c.Server, c.Mean, c.P99, c.Max = rounded(percentile(server, 50)), rounded(mean(server)), percentile(server, 99), slices.Max(server)
	c.Client, c.CPU, c.Longest = rounded(percentile(client, 50)), rounded(percentile(ran, 50)), rounded(c.Longest)
	c.PerJob, c.CPUPerJob = rounded(c.Server/float64(key.batch)), rounded(c.CPU/float64(key.batch))
	return c
}

// summaries are the costs of all samples at one size, in the order of the calls and their numbers of jobs.
func (m *meter) summaries(size int, batches []int) (out []cost) {
	for _, op := range slices.Concat(ops, controls, []string{opCount}) {
		for _, batch := range batches {
			if samples := m.samples[callKey{op, batch}]; len(samples) > 0 {
				out = append(out, summarise(callKey{op, batch}, size, samples))
			}
		}
	}
	return out
}

// percentile is the smallest value that p percent of the values do not exceed. There is at least one value.
func percentile(values []float64, p float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

func mean(values []float64) (m float64) {
	for _, v := range values {
		m += v / float64(len(values))
	}
	return m
}

// rounded has two digits behind the point: there are no more in a measurement.
func rounded(v float64) float64 { return math.Round(v*100) / 100 }
