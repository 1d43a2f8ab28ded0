package reliable

import (
	"context"
	"errors"
	"fmt"

	"github.com/leaseq/leaseq/internal/wire"
	"github.com/leaseq/leaseq/lease"
)

// Import makes jobs out of what Inspect or Get has told of jobs in due and dead, of this or another queue: the same bytes,
// times, counters, limits and errors, in the same place. A dead job died at Redis' now at the latest. It goes out in batches
// of up to 256 jobs and 4 MiB. Per item: nil; [*DuplicateError] for an ID that a job has already, which is left as it is;
// what is wrong with the job; [*UnknownError] where it may have been made. err is the first failure of a whole call: nothing
// more was sent after it, and the jobs of later batches have an error that is [ErrNeverRan].
func (q *Queue) Import(ctx context.Context, jobs []Info) (results []error, err error) {
	results = make([]error, len(jobs))
	var batch []lease.Kept
	var index []int
	bytes := 0
	send := func() {
		if len(batch) == 0 {
			return
		}
		answers, failure := []error(nil), err
		if failure == nil {
			answers, err = q.importBatch(ctx, batch)
			failure = err
		} else {
			failure = fmt.Errorf("%w: %w", ErrNeverRan, err)
		}
		for n, i := range index {
			results[i] = failure
			if n < len(answers) {
				results[i] = answers[n]
			}
		}
		batch, index, bytes = nil, nil, 0
	}
	for i := range jobs {
		kept, problem := jobs[i].kept()
		if problem != nil {
			results[i] = fmt.Errorf("import %s: %w", reasonText(jobs[i].ID, 64), problem)
			continue
		}
		if len(batch) == lease.DefaultBatch || len(batch) > 0 && bytes+len(kept.Record) > lease.MaxBytes {
			send()
		}
		batch, index, bytes = append(batch, kept), append(index, i), bytes+len(kept.Record)
	}
	send()
	return results, err
}

func (q *Queue) importBatch(ctx context.Context, batch []lease.Kept) ([]error, error) {
	if err := q.register(ctx); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNeverRan, err)
	}
	return q.store.Import(ctx, batch)
}

// CheckImport reports every mistake for which an import would refuse the job before anything is sent. It contacts nobody.
func (q *Queue) CheckImport(job Info) error {
	_, err := job.kept()
	return err
}

// kept checks a job and makes its record.
func (info *Info) kept() (lease.Kept, error) {
	k := lease.Kept{
		ID: info.ID, Place: info.Place, At: info.At, Failures: info.Failures, Expiries: info.Expiries, Redrives: info.Redrives,
		MaxRetries: info.MaxRetries, MaxExpiries: info.MaxExpiries, NotAfter: info.NotAfter, Errors: info.Errors, Stack: info.Stack,
	}
	if err := validateID(info.ID); err != nil {
		return k, err
	}
	var err error
	switch {
	case info.Undecoded != nil && len(info.Payload) == 0:
		err = errors.New("its record is empty")
	case info.Undecoded != nil:
		k.Record = info.Payload
	case info.Kind == "":
		k.Record = wire.Stub()
	default:
		err = checkHeaders(info.Headers)
		if err == nil {
			k.Record, err = wire.Append(nil, &wire.Envelope{Kind: info.Kind, Payload: info.Payload, Headers: info.Headers, EnqueuedAt: info.EnqueuedAt})
		}
	}
	return k, errors.Join(err, k.Check())
}
