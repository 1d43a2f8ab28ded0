package lease

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/internal/script"
)

// Running says what a deletion does about jobs that are being worked on.
type Running string

// What becomes of jobs in processing.
const (
	RefuseRunning Running = "refuse" // nothing is deleted while there are any
	LeaveRunning  Running = "leave"  // they stay, and all others are deleted
	EndRunning    Running = "end"    // they are deleted too, after all others; whoever works on one finds its lease gone
)

// Deleted is what one step of a deletion has done.
type Deleted struct {
	Jobs, Ended      int   // deleted by this step: from due, dead and done; from processing
	Processing, Left int64 // still there after it: in processing; in due, dead and done
}

// DeleteNext deletes up to n jobs (1–1,000) of a queue that is to go, from due, dead and done, whatever their times, and
// with EndRunning from processing then. Each job goes whole. Repeat it until nothing is left, then call Erase. Jobs that
// are enqueued meanwhile go too if there are further steps. It can be interrupted anywhere and run again. After an
// [*UnknownError] the step may have been done; another one does no harm.
func (s *Store) DeleteNext(ctx context.Context, n int, running Running) (Deleted, error) {
	if err := checkBatch("delete", n); err != nil {
		return Deleted{}, err
	}
	if running != RefuseRunning && running != LeaveRunning && running != EndRunning {
		return Deleted{}, fmt.Errorf("delete: jobs in processing: %q: want refuse, leave or end", running)
	}
	call, err := s.numbered(ctx, "delete", deleteScript, []any{n, string(running)})
	if err != nil {
		return Deleted{}, err
	}
	fields := strings.Split(call.Rest, " ")
	var numbers [4]int64
	for i := range numbers {
		if len(fields) == len(numbers) {
			numbers[i], err = strconv.ParseInt(fields[i], 10, 64)
		}
		if len(fields) != len(numbers) || err != nil || numbers[i] < 0 {
			return Deleted{}, odd(deleteScript, call.Rest)
		}
	}
	return Deleted{Jobs: int(numbers[0]), Ended: int(numbers[1]), Processing: numbers[2], Left: numbers[3]}, nil
}

// Erase deletes all keys of the partition but for idempotency records, in one step, unless a job is in any place: left
// says how many are. Safe to run twice; repeated until answered, refused, or ctx ends.
//
// Sessions go with it: a call that is on its way then does nothing, and its caller is told so, or, where an earlier try
// of it may have run, that nobody can know it any more ([ErrNeverKnown]). A consumer or a sweeper that still works on
// the queue makes its keys anew.
func (s *Store) Erase(ctx context.Context) (left int64, err error) {
	req := &script.Request{Script: eraseScript, Args: []any{}}
	if err := s.repeat(ctx, req); err != nil {
		return 0, err
	}
	n, ok := integers(req.Reply, 3)
	if !ok {
		return 0, odd(eraseScript, req.Reply)
	}
	return n[0], nil
}

// Unregister takes the queue's name out of the registry, by a plain SREM.
func (s *Store) Unregister(ctx context.Context) error {
	err := s.rdb.SRem(ctx, keys.Registry(s.keys.Prefix()), s.keys.Queue()).Err()
	if err != nil {
		return fmt.Errorf("unregister queue %s: %w", s.keys.Queue(), script.Typed(err))
	}
	return nil
}
