// Package demo is `reaper demo`: workers are killed and frozen in the middle of jobs, and a ledger shows that nothing
// was lost, and that no side effect was done twice but where the guard said that it may be.
//
// The demonstration and its workers are processes of one program. What a worker does it writes into a file that all
// workers only append to, one JSON line per start, side effect and end of a job, and per answer of the guard that a side
// effect is in doubt. The ledger is computed from that file and from what Redis says at the end, never from anything that
// the demonstration counted itself: a program that reports its own success proves little.
package demo

import "time"

// How the demonstration's queue and workers are set. The lease is short, so that a person can wait for it to run out.
const (
	leaseLength   = 2 * time.Second
	workers       = 3
	slots         = 6 // jobs that one worker runs at a time
	maxRetries    = 3 // so that the poisonous job is dead after four starts
	backoffBase   = 200 * time.Millisecond
	backoffCap    = time.Second
	wakeFallback  = 250 * time.Millisecond
	drainTimeout  = time.Second
	enqueueChunk  = 10 // jobs that the demonstration's producer sends at a time
	workerCommand = "demo-worker"

	// keyPrefix is not the default one, so that a sidecar that looks after all queues of a server does not look after
	// this one, whose keys are removed in the end.
	keyPrefix = "leaseq-demo"
)

// Bounds. On an idle machine the whole takes about eight seconds.
const (
	wholeBound = 90 * time.Second
	actBound   = 20 * time.Second
	startBound = 10 * time.Second // of a server, or of the answer of one
	stopBound  = 8 * time.Second  // of workers that were asked to end
	killBound  = 5 * time.Second  // from SIGKILL to the end of a process
	cleanBound = 5 * time.Second
)
