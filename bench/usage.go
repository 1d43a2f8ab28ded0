package main

import (
	"context"
	"fmt"
	"runtime"
	"time"
)

// A usage is what client and server have spent up to a moment.
type usage struct {
	at     time.Time
	server serverUsage
	cpu    time.Duration // of this process
	allocs uint64        // of this process, number and bytes
	bytes  uint64
}

func readUsage(ctx context.Context, s *server) (usage, error) {
	spent, err := s.usage(ctx)
	if err != nil {
		return usage{}, err
	}
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	return usage{at: time.Now(), server: spent, cpu: clientCPU(), allocs: memory.Mallocs, bytes: memory.TotalAlloc}, nil
}

// addCosts adds what each of n jobs has cost between two moments, as figures that begin with prefix.
func (s *stand) addCosts(prefix string, before, after usage, n int) {
	a := func(name string, difference float64) {
		s.add(fmt.Sprintf("%s_%s", prefix, name), difference/float64(n))
	}
	a("server_cpu_us", 1e6*(after.server.cpu-before.server.cpu))
	a("requests", after.server.requests-before.server.requests)
	a("net_in_bytes", after.server.in-before.server.in)
	a("net_out_bytes", after.server.out-before.server.out)
	if after.cpu > 0 {
		a("client_cpu_us", 1e6*(after.cpu-before.cpu).Seconds())
	}
	a("allocs", float64(after.allocs-before.allocs))
	a("alloc_bytes", float64(after.bytes-before.bytes))
}
