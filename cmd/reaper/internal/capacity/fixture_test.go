package capacity

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// round are costs that are easy to multiply with.
func round() *Costs {
	return &Costs{
		Command: "make bench-scale", Machine: "a machine", Payload: 200, ID: 26,
		Growth: []Growth{{1_000, 0, 0}, {10_000, 1, 1}, {1_000_000, 3, 6}, {10_000_000, 13, 26}}, PerKB: 4,
		Producers: []Spending{
			{Batch: 1, Server: 50, Client: 60, Requests: 1, In: 500, Out: 20},
			{Batch: 10, Server: 14, Client: 24, Requests: 0.1, In: 320, Out: 2},
		},
		Consumers: []Spending{
			{Concurrency: 1, Server: 100, Client: 120, Requests: 1, In: 1000, Out: 400},
			{Concurrency: 100, Server: 10, Client: 30, Requests: 0.02, In: 118, Out: 302},
		},
		Extend:   []BatchCost{{1, 40}, {100, 4}},
		Payloads: []Memory{{100, 200}, {1_000, 250}, {10_000, 500}},
		IDs:      []Memory{{6, 180}, {26, 210}, {256, 900}}, Processing: 150,
	}
}
