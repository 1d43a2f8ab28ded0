package lease

import (
	"context"
	"time"

	"github.com/leaseq/leaseq/internal/script"
)

// Expired is what one expire call did.
type Expired struct {
	ToDue, ToDead int
	Cancelled     int           // jobs that had been cancelled while they ran: removed
	Missing       int           // members without a record: put into dead
	More          bool          // more leases have run out: call again at once
	NextExpiry    time.Duration // until the next lease runs out; negative where nothing is in processing
	Grace         time.Duration // how long holders are still spared after a gap between sweeps; 0: not at all
	Lease         time.Duration // the queue's published lease
}

// Moved is how many leases the call ended.
func (e *Expired) Moved() int { return e.ToDue + e.ToDead + e.Cancelled + e.Missing }

// Expire ends up to n leases (1–1,000) whose expiry has passed. It is safe to run twice and from any number of
// processes. noGrace is for tests, and for operators who know that no holder lives. One try: an error means that it may
// have run, and calling again is the answer to it.
func (s *Store) Expire(ctx context.Context, n int, noGrace bool) (Expired, error) {
	return s.expireBy(ctx, s.runner.Send, n, noGrace)
}

// expireAside is Expire on connections of the Store's own.
func (s *Store) expireAside(ctx context.Context, n int) (Expired, error) {
	return s.expireBy(ctx, s.runner.SendAside, n, false)
}

func (s *Store) expireBy(ctx context.Context, send func(context.Context, ...*script.Request), n int, noGrace bool) (Expired, error) {
	if err := checkBatch("expire", n); err != nil {
		return Expired{}, err
	}
	flag := 0
	if noGrace {
		flag = 1
	}
	req := &script.Request{Script: expireScript, Args: []any{n, flag, s.stub}}
	if send(ctx, req); req.Err != nil {
		return Expired{}, req.Err
	}
	numbers, ok := integers(req.Reply, 9)
	if !ok {
		return Expired{}, odd(expireScript, req.Reply)
	}
	return Expired{
		ToDue: int(numbers[0]), ToDead: int(numbers[1]), Cancelled: int(numbers[2]), Missing: int(numbers[3]),
		More: numbers[4] == 1, NextExpiry: millis(numbers[5]), Grace: millis(numbers[6]), Lease: millis(numbers[7]),
	}, nil
}

// integers reads what follows the status of an answer of n elements.
func integers(reply []any, n int) ([]int64, bool) {
	if len(reply) != n || reply[0] != "OK" {
		return nil, false
	}
	out := make([]int64, n-1)
	for i := range out {
		value, ok := reply[i+1].(int64)
		if !ok {
			return nil, false
		}
		out[i] = value
	}
	return out, true
}

// TrimSessions forgets sessions that no call has used for an hour, a page of about 100 at each call. It returns the
// cursor for the next page; begin with "0", which is also what the last page returns.
func (s *Store) TrimSessions(ctx context.Context, cursor string) (next string, removed int64, err error) {
	return s.sessions.Trim(ctx, cursor, time.Hour)
}

// Wake passes a wake-up on to another process that waits for jobs. Repeated until it is answered or ctx ends.
func (s *Store) Wake(ctx context.Context) error {
	return s.repeat(ctx, &script.Request{Script: wakeScript, Args: []any{}})
}
