package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// tinyPlan has a bit of everything.
func tinyPlan() plan {
	return plan{
		rounds:     2,
		enqueueOne: 50, enqueueMany: 200, enqueueBatch: 200,
		process:  []load{{1, 20}, {50, 200}},
		steady:   200 * time.Millisecond,
		memory:   []int{2000},
		idle:     2 * time.Second,
		latency:  2,
		delayed:  spread{jobs: 20, lead: 500 * time.Millisecond, over: time.Second},
		recovery: recoveryPlan{jobs: 3, leads: []time.Duration{100 * time.Millisecond}},
		fast:     true,
		settle:   100 * time.Millisecond,
		timeout:  time.Minute,
	}
}

// tiny makes the measurements of the tiny plan.
func tiny(t *testing.T, systems []string, only ...string) *document {
	t.Helper()
	chosen, err := choose(systems)
	require.NoError(t, err)
	program, err := os.Executable()
	require.NoError(t, err)
	b := &bench{plan: tinyPlan(), systems: chosen, only: only, program: program, results: newResults(), log: t.Output()}
	require.NoError(t, b.run(t.Context()))
	return newDocument(b, true, time.Now())
}

// figure returns the values of a figure, 0 or more of each system.
func (d *document) figure(t *testing.T, key string) map[string]*measured {
	t.Helper()
	for _, f := range d.Figures {
		if f.Key == key {
			return f.Systems
		}
	}
	require.Fail(t, "no figure "+key)
	return nil
}

func TestAQuickRunHasAllHeadlines(t *testing.T) {
	d := tiny(t, nil, "enqueue", "process", "steady", "memory", "idle", "latency")
	encoded, err := d.encode()
	require.NoError(t, err)
	decoder := json.NewDecoder(bytes.NewReader(encoded))
	var fields map[string]any
	require.NoError(t, decoder.Decode(&fields))
	require.False(t, decoder.More(), "one object")
	for key, bounds := range map[string][2]float64{
		"process_50_vs_asynq":   {0.01, 1000},
		"process_50_vs_pop":     {0.01, 1000},
		"server_cpu_us_per_job": {0.1, 5000},
		"enqueue_50_vs_asynq":   {0.01, 1000},
		"memory_overhead_bytes": {50, 2000},
		"idle_latency_p50_ms":   {0.01, 5000},
		"idle_commands_per_s":   {0.1, 100},
	} {
		require.IsType(t, 0.0, fields[key], key)
		require.GreaterOrEqual(t, fields[key], bounds[0], key)
		require.LessOrEqual(t, fields[key], bounds[1], key)
	}
	for _, name := range []string{"leaseq", "asynq", "pop"} {
		require.Len(t, d.figure(t, "process_50")[name].Values, 2, "a value for each round")
		require.NotNil(t, d.figure(t, "steady")[name])
		require.Positive(t, d.figure(t, "process_1_client_cpu_us")[name].Median)
		require.Positive(t, d.figure(t, "latency_max_fast")[name].Median)
		require.Greater(t, d.figure(t, "process_50_net_out_bytes")[name].Median, 200.0, "every payload crosses the network")
	}
	require.Positive(t, d.figure(t, "steady")["leaseq"].Median) // asynq may sleep for longer than this run lasts
	require.InDelta(t, 1, d.figure(t, "enqueue_1_requests")["pop"].Median, 0.2, "the pop sends one request a job")
	require.InDelta(t, 1, d.figure(t, "enqueue_1_requests")["asynq"].Median, 0.2)
	require.Nil(t, d.figure(t, "enqueue_batch")["asynq"], "asynq has no batches")
}

func TestDelayedJobsAndKillsAreMeasured(t *testing.T) {
	d := tiny(t, []string{"leaseq", "pop"}, "delayed", "recovery")
	for _, name := range d.Systems {
		require.GreaterOrEqual(t, d.figure(t, "late_min")[name].Median, 0.0, "no job is early")
	}
	require.Nil(t, d.figure(t, "recovery_p50_fast")["pop"], "the pop loses the jobs")
	after := d.figure(t, "recovery_p50_fast")["leaseq"].Median
	require.GreaterOrEqual(t, after, 0.0)
	require.Less(t, after, 5000.0)
	require.Greater(t, d.figure(t, "recovery_from_kill_max_fast")["leaseq"].Median, after)
}

func TestAFailureIsNamedAndTheRestIsMeasured(t *testing.T) {
	broken := func() System { return endingSystem{new(popSystem)} }
	b := &bench{plan: tinyPlan(), systems: []func() System{broken}, only: []string{"process", "memory"}, results: newResults(), log: t.Output()}
	err := b.run(t.Context())
	require.ErrorIs(t, err, errEnded)
	require.ErrorContains(t, err, "process_1: pop: ")
	require.NotEmpty(t, b.results.get("pop", "memory_2000"))

	b.plan.timeout = time.Nanosecond
	b.only = []string{"memory"}
	require.ErrorContains(t, b.run(t.Context()), "not done within 1ns")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, b.run(ctx), context.Canceled)
}
