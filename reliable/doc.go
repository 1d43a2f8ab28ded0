// Package reliable is an at-least-once queue with processing leases on Redis, for work that must not be lost: orders to
// close after 30 minutes, callbacks, refunds, coupons, notices.
//
// A [Queue] enqueues jobs, at once or for later. A [Consumer] claims jobs that are due, runs a [Handler] for each and
// settles them by what it returns: nil acks, an error puts the job back with a growing delay until its retries are used
// up and it goes to dead. While a handler runs, its job is leased to this process: the lease is extended every third of
// its length, and a worker that dies, hangs or is cut off loses it. Then any sweeper, in another consumer or in the
// sidecar (cmd/reaper), puts the job back with its retry count raised.
//
// # What is promised
//
//   - A job whose enqueue was answered without an error is never lost, as far as Redis keeps what it acknowledged.
//   - It is not started before its due time, by Redis' clock.
//   - It is handed to one holder at a time, unless a holder outlives its lease; the loser's verdict is refused (ErrLost)
//     and changes nothing, and its context ends at the latest when its lease does.
//   - A crash of a worker costs one expiry, a returned error one failure, a deploy nothing.
//   - A lost reply, a repeat by the client or a late request never counts, leases or settles anything twice.
//
// # What is not
//
// A handler can run twice: after a crash between its effect and the ack, or when it outlives its lease. [Job.Once] does an
// effect once, as far as that can be known; [Job.Fence] fences writes. Order is by due time, within a millisecond by ID, and across retries there
// is none. How much a crash of Redis itself loses is up to its persistence.
//
// # What is settled
//
// What a handler returns, against why its context ended, decides:
//
//	                 nil    Discard   RetryAfter   Release    other error   never returned
//	none             ack    bury      nack at d    release    nack          extended until the timeout
//	job timeout      ack    bury      nack at d    release    nack          the lease runs out
//	shutdown         ack    bury      nack at d    release    release       release
//	local deadline   ack    bury      nack at d    release    release       the lease runs out
//	 (nobody extends)                                         nack
//	lost             as the first row: sent once, refused, nothing is written
//	cancelled        as the first row: whatever it is, the job is removed
//
// docs/consumer.md tells all that a Consumer does: claims and slots, timeouts, the times of a stop, middleware, hooks.
package reliable
