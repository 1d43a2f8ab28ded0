// Package sqlguard makes effects in a SQL database happen exactly once, however often a job runs.
//
// A job of an at-least-once queue can run again after its effect. Where the effect is a write to a database, the database
// itself can tell whether it happened, in the transaction that writes it. No record in Redis can do that: between two
// stores there is always a moment in which one knows and the other does not. There are three ways, the plainest first:
//
//   - The conditional update. The row's own state says whether there is anything to do, and 0 rows is success:
//
//     closed, err := sqlguard.Changed(db.ExecContext(ctx,
//     `UPDATE orders SET status = 'CLOSED' WHERE id = $1 AND status = 'WAIT_PAY'`, id))
//
//   - The key in the same transaction ([Once], [First]), for effects without a state of their own, as a coupon that is
//     granted: the key's row and the effect are committed together or not at all.
//
//   - The fenced update ([Advance], [Fenced]), for values that are overwritten: what a newer holder of the job has written
//     is not overwritten by an older one that was frozen and woke up. It orders writers, and does not make an effect
//     happen once by itself: every start of a job has a fence of its own, and a later one may write again.
//
// What leaves the database, a mail or a call to another service, is not made exactly once by any of them.
//
// The package imports database/sql and no driver. Its statements are PostgreSQL's ($1, ON CONFLICT); it was tried on
// PostgreSQL 15 with pgx. [Schema] makes its two tables. [Changed] and [Fenced] hold for any database.
//
// # Isolation, deadlocks and repeats
//
// The default, READ COMMITTED, is enough for all three. Whoever inserts a key that another transaction has inserted and not
// committed waits for its end: after a commit the key is there, after a rollback the one who waited is first. Under
// REPEATABLE READ and SERIALIZABLE the one who waited fails with 40001 instead, and has to begin a new transaction. Two
// transactions that take several keys or rows in different orders can deadlock (40P01): take them in one order, as sorted.
// [Retryable] knows both. [Once] repeats by itself; elsewhere roll back and return the error, and the job comes again.
//
// # When the reply of COMMIT is lost
//
// Then nobody knows whether the effect happened, and Once returns the driver's error. Return it from the handler: the next
// start finds the key, or does not, and is right either way.
package sqlguard
