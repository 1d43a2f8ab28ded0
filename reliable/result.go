package reliable

import (
	"context"
	"fmt"
	"slices"

	"github.com/leaseq/leaseq/lease"
)

// MaxResult is how large the result of a job may be: 64 KiB.
const MaxResult = lease.MaxResult

// SetResult gives the job a result, at most [MaxResult] bytes, which its ack keeps where the queue keeps finished jobs
// ([QueueOptions].DoneAge): [Queue.Result] and [Queue.Get] read it until that time is over. Where nothing is kept it is
// dropped, as it is where the job is not acked: a next run begins without one. The last one given counts; an empty one is
// none. The bytes are copied. A larger one is a [*TooLargeError], and one that comes when the job is settled, or as good
// as, is [ErrSettled], or [ErrLost]: either leaves all as it was.
func (j *Job) SetResult(result []byte) error {
	if len(result) > MaxResult {
		return fmt.Errorf("job %s: %w", j.ID, &TooLargeError{What: "result", Size: len(result), Limit: MaxResult})
	}
	j.mu.Lock()
	over := j.settled || j.decided
	if !over {
		j.result = slices.Clone(result)
	}
	j.mu.Unlock()
	if over {
		return j.settledBefore()
	}
	return nil
}

// given is the result that the job has.
func (j *Job) given() []byte {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.result
}

// An UnfinishedError says that a job has no result yet, or never will: it is in Place, and not done.
type UnfinishedError struct {
	ID    string
	Place Place
}

func (e *UnfinishedError) Error() string {
	return fmt.Sprintf("job %s is in %s, and not done: it has no result", e.ID, e.Place)
}

// Result reads the result of a finished job; nil where its handler gave none. A job that is not finished gives
// [*UnfinishedError] with the place where it is. [ErrGone] is an ID that no job has: it was never used, its time in done
// is over, or the queue did not keep finished jobs when it was acked.
func (q *Queue) Result(ctx context.Context, id string) ([]byte, error) {
	info, err := q.Get(ctx, id)
	switch {
	case err != nil:
		return nil, err
	case info.Place != Done:
		return nil, &UnfinishedError{ID: id, Place: info.Place}
	}
	return info.Result, nil
}
