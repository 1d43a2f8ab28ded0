// Package idempotency makes a side effect happen once for a key, as far as that can be known: a record in Redis says
// whether the effect was started, by whom, and whether it is done, with its result.
//
// A bare SET NX turns "at least once" into "at most once": who sets the key and dies before the effect has it skipped for
// ever. Here a key has two phases:
//
//	absent ──Begin──▶ started ──Commit──▶ done, with a result that later callers get
//	   ▲                │  ▲
//	   └────Abort───────┘  └── its holder's lease is over: in doubt; the next Begin takes it over
//
// A record lives for the retention, a day by default, in both states. So a holder that died leaves a key that is in
// doubt, never one that is absent: nobody but the downstream knows whether the effect happened. [Redo], the default,
// runs it again; [Ask] has the caller look first.
//
// While a [Permit] is held, the guard moves its lease on, so nothing has to be tuned to how long an effect takes; the
// permit's context ends when the lease cannot be kept. Every step is one script that compares and acts, and is numbered:
// a lost reply never makes it act twice, and an [*UnknownError] can be resolved. Where Redis cannot be asked, Begin
// returns an error, and the effect must not run.
//
// In the handler of a job, in package reliable, none of this has to be called: job.Once(ctx, "mail", send) runs an effect
// once in all runs of the job, and job.OnceAndAck writes it down as done in the step that acks. There the record rides on
// the job's lease, kept by its heartbeat; job.Begin and job.CompleteAndAck do that for a Guard's keys.
//
// What this cannot do: make an effect happen exactly once that lies outside of Redis. Between the effect and Commit the
// process can die. Where the effect is a write to a database, package sqlguard puts the key into the same transaction,
// which closes that gap.
package idempotency
