// Package reaper looks after queues from outside of their workers: it puts jobs whose leases ran out back, and forgets
// sessions of processes that are gone.
//
// A Consumer of package reliable sweeps the queue that it works on, so a reaper is not needed for that. It is for
// everything else: queues whose consumers are all down, consumers that were told not to sweep, jobs that are claimed by
// hand, and one place to watch many queues from. [Reaper.Run] is the sidecar, [Reaper.Sweep] one pass for cron:
//
//	r, err := reaper.New(rdb, nil)
//	if err != nil {
//		return err
//	}
//	return r.Run(ctx)
//
// # Why there is no leader
//
// Any number of reapers and consumers may sweep one queue at the same time. What ends a lease is one script, which runs
// alone on the server, compares with the server's clock, and removes the lease in the same step: of two that come at
// once the second finds nothing to do. So there is no lock that could be held by a process that died, nothing to elect
// and no time without a sweeper after a crash. Two reapers on two machines are enough, and cost next to nothing: each
// asks about every queue when its next lease runs out, and at least four times a lease.
//
// # What it does not do
//
// No lease is taken before its stored expiry, whatever the options here say: the expiry is written by whoever claims,
// and the length of a lease is the queue's published policy. After a gap in which nobody swept (the first sweep of a
// queue, an outage, a stopped server) holders that live are spared for one lease, so that they can extend first; the
// sweeps in that time end nothing, and say how long it goes on.
package reaper
