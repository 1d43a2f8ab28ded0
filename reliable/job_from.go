package reliable

import (
	"context"
	"time"
)

// JobFrom returns the job that a context belongs to: that of a handler, of a middleware, of a hook, of [Job.Context],
// and each that is derived from one of them. ok is false for any other context. It serves code that is handed a context
// only, as a log handler that adds the job's ID to every line. The job is the one that the handler has; where contexts
// of two jobs are nested it is the inner one's.
func JobFrom(ctx context.Context) (job *Job, ok bool) {
	job, ok = ctx.Value(jobKey{}).(*Job)
	return job, ok
}

type jobKey struct{}

// jobContext is a Job as the context that its hold's is derived from: never done, and it knows the job. It costs no
// allocation.
type jobContext Job

func (c *jobContext) Deadline() (deadline time.Time, ok bool) { return time.Time{}, false }

func (c *jobContext) Done() <-chan struct{} { return nil }

func (c *jobContext) Err() error { return nil }

func (c *jobContext) Value(key any) any {
	if key == (jobKey{}) {
		return (*Job)(c)
	}
	return nil
}

// String is for contexts that are printed: nothing of a payload is.
func (c *jobContext) String() string { return "reliable.Job " + c.ID }
