// Package lease speaks the protocol of processing leases over one partition of a queue, in batches. Package reliable
// builds a plain queue on it, package reaper a sidecar; most users want those.
//
//	                     claim
//	enqueue ──▶ due ──────────────▶ processing ──▶ (ack) gone
//	             ▲   nack, release,   │      │
//	             ├────── expire ──────┘      │ nack or expire too often, bury
//	             │                           ▼
//	             └──────── redrive ──────── dead ──▶ (purge, cancel) gone
//
// Bury takes jobs by ID from due to dead, Edit can redrive what it edits, and Import makes jobs in due or dead; nothing but
// a holder, an expiry or a cancel touches processing.
//
// A [Store] has every transition as a method, each one script on the server. A [Keeper] extends what a process holds
// and ends contexts when leases end. A [Sweeper] puts back what ran out. A [Waiter] waits for something to claim.
//
// # What is promised
//
// A job is in exactly one place at any time. Whoever holds a token that is current may settle or extend, nobody else
// can. Fences grow strictly per partition. A call whose reply was lost is run at most once, and an [*UnknownError] can
// always be resolved to the truth, or to the answer that it cannot be known any more. Only Redis' clock counts; what a
// process learns are durations, measured from before the call that was answered.
//
// # What is not
//
// Two deliveries overlap when a holder outlives its lease. After a step back of the server's clock by more than the
// time since the last claim a fence may not grow. An asynchronous failover loses what was not replicated.
package lease
