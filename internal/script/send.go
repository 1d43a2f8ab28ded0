package script

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leaseq/leaseq/internal/keys"
)

// A Request is one script call: filled in by the caller, answered by Send.
type Request struct {
	Script  *Script
	Session string // of a numbered call; "" where Args begin with session and number, or there are none
	Number  uint64
	Args    []any
	Records []string // whole keys of idempotency records, after the fixed ones: KEYS[n+1] … where the header allows them

	Reply  []any     // the answer, always an array
	Err    error     // why there is none, as the client gave it
	SentAt time.Time // just before the try that was answered, or failed

	then *Request // what a joined script is to do behind this one
}

// appendArgs appends what a script has in ARGV.
func (q *Request) appendArgs(args []any) []any {
	for ; q != nil; q = q.then {
		if q.Session != "" {
			args = append(args, q.Session, q.Number)
		}
		args = append(args, q.Args...)
	}
	return args
}

// width is at least how many arguments these are.
func (q *Request) width() (n int) {
	for ; q != nil; q = q.then {
		n += 2 + len(q.Args)
	}
	return n
}

// A Runner sends scripts over the keys of one partition. It is safe for concurrent use.
type Runner struct {
	link  *Link
	mine  bool // the link is of this Runner alone
	keys  *keys.Partition
	fixed sync.Map // *Script: []any, its digest and keys as arguments
}

// NewRunner does no I/O.
func NewRunner(rdb redis.UniversalClient, partition *keys.Partition) *Runner {
	return &Runner{link: NewLink(rdb), mine: true, keys: partition}
}

// NewRunnerOn makes a Runner on a link that it does not close.
func NewRunnerOn(link *Link, partition *keys.Partition) *Runner {
	return &Runner{link: link, keys: partition}
}

// Link returns what the Runner sends on.
func (r *Runner) Link() *Link { return r.link }

// Close ends the connections of our own, unless others share them.
func (r *Runner) Close() error {
	if !r.mine {
		return nil
	}
	return r.link.Close()
}

// once is a command that the client may not repeat by itself after a lost reply: whether a repeat is safe is known
// here, not there.
type once struct{ *redis.Cmd }

func (once) NoRetry() bool { return true }

func (o once) Clone() redis.Cmder {
	clone, _ := o.Cmd.Clone().(*redis.Cmd)
	return once{clone}
}

// fixedOf is a script's digest and keys, made into arguments once.
func (r *Runner) fixedOf(s *Script) []any {
	if known, ok := r.fixed.Load(s); ok {
		return known.([]any)
	}
	args := []any{s.sha}
	for _, name := range s.Keys {
		args = append(args, r.keys.Key(name))
	}
	r.fixed.Store(s, args)
	return args
}

func (r *Runner) command(ctx context.Context, req *Request, whole bool) once {
	s := req.Script
	fixed := r.fixedOf(s)
	args := make([]any, 0, 2+len(fixed)+len(req.Records)+req.width())
	if whole {
		args = append(args, "eval", s.source)
	} else {
		args = append(args, "evalsha", fixed[0])
	}
	args = append(args, len(s.Keys)+len(req.Records))
	args = append(args, fixed[1:]...)
	for _, key := range req.Records {
		args = append(args, key)
	}
	cmd := redis.NewCmd(ctx, req.appendArgs(args)...)
	cmd.SetFirstKeyPos(3)
	return once{cmd}
}

// Send tries the requests once, in one round trip, and fills in their answers and errors. A server that does not know
// a script gets it whole, in one further round trip. Two requests of one Send may run in any order.
func (r *Runner) Send(ctx context.Context, requests ...*Request) { r.sendOn(ctx, onClients, requests) }

// SendFirst is Send on connections of our own, which nobody's work takes: for what must not wait for one. Where no such
// connections can be made, or too many are in use, it is Send.
func (r *Runner) SendFirst(ctx context.Context, requests ...*Request) {
	r.sendOn(ctx, onOurs, requests)
}

// SendAgain is SendFirst for a try after one that had no answer: connections of our own that have been idle are replaced
// first, since they may have died without a word as well.
func (r *Runner) SendAgain(ctx context.Context, requests ...*Request) {
	r.sendOn(ctx, onOursAgain, requests)
}

// SendAside is SendAgain for calls that leave half of the connections to SendFirst.
func (r *Runner) SendAside(ctx context.Context, requests ...*Request) {
	r.sendOn(ctx, onOursAside, requests)
}

// sendOn sends in one of the ways.
func (r *Runner) sendOn(ctx context.Context, by way, requests []*Request) {
	err := r.checkRecords(requests)
	if err == nil {
		err = r.link.use(ctx, by, func(rdb redis.UniversalClient) error {
			r.sendWhole(ctx, rdb, requests)
			return requests[0].Err
		})
	}
	if err == nil {
		return
	}
	for _, req := range requests {
		req.Reply, req.Err, req.SentAt = nil, err, time.Now()
	}
}

func (r *Runner) sendWhole(ctx context.Context, rdb redis.UniversalClient, requests []*Request) {
	r.send(ctx, rdb, false, requests)
	var missing []*Request
	for _, req := range requests {
		if req.Err != nil && redis.HasErrorPrefix(req.Err, "NOSCRIPT") {
			missing = append(missing, req)
		}
	}
	if len(missing) > 0 {
		r.send(ctx, rdb, true, missing)
	}
}

func (r *Runner) send(ctx context.Context, rdb redis.UniversalClient, whole bool, requests []*Request) {
	if len(requests) == 1 {
		r.sendOne(ctx, rdb, whole, requests[0])
		return
	}
	if one := together(requests); one != nil {
		if r.sendOne(ctx, rdb, whole, one); one.apart(requests) {
			return
		}
	}
	sent := time.Now()
	pipe := rdb.Pipeline()
	commands := make([]once, len(requests))
	for i, req := range requests {
		commands[i] = r.command(ctx, req, whole)
		_ = pipe.Process(ctx, commands[i]) // only queued
	}
	_, failed := pipe.Exec(ctx) // each command holds its own error
	for i, req := range requests {
		req.SentAt = sent
		req.take(commands[i])
		if req.Err == nil && req.Reply == nil {
			req.Err = failed // a command that the client did not reach
		}
	}
}

func (r *Runner) sendOne(ctx context.Context, rdb redis.UniversalClient, whole bool, req *Request) {
	req.SentAt = time.Now()
	cmd := r.command(ctx, req, whole)
	_ = rdb.Process(ctx, cmd) // the command holds the error
	req.take(cmd)
}

func (q *Request) take(cmd once) {
	q.Reply, q.Err = nil, cmd.Err()
	if q.Err != nil {
		return
	}
	reply, ok := cmd.Val().([]any)
	if !ok || len(reply) == 0 {
		q.Err = &ReplyError{Script: q.Script.Name, Reply: cmd.Val()}
		return
	}
	q.Reply = reply
}

// Status is the first word of the answer, or "".
func (q *Request) Status() string {
	if len(q.Reply) == 0 {
		return ""
	}
	status, _ := q.Reply[0].(string)
	return status
}

// Repeat runs a script that is safe to run twice until it is answered, refused, or ctx ends.
func (r *Runner) Repeat(ctx context.Context, req *Request) error {
	for wait := newBackoff(defaultCap); ; {
		if err := ctx.Err(); err != nil {
			return err
		}
		r.Send(ctx, req)
		what, err := classify(req.Err)
		if what == answered || what == refused {
			return err
		}
		if wait.sleep(ctx) != nil {
			return err
		}
	}
}

const (
	firstWait  = 4 * time.Millisecond
	defaultCap = time.Second
)

// backoff is a capped exponential wait with jitter: each wait is between half and the whole of its step.
type backoff struct{ next, cap time.Duration }

func newBackoff(cap time.Duration) *backoff { return &backoff{next: firstWait, cap: cap} }

func (b *backoff) sleep(ctx context.Context, or ...<-chan struct{}) error {
	step := min(b.next, b.cap)
	b.next = min(2*step, b.cap)
	return Sleep(ctx, step/2+rand.N(step/2+1), or...)
}

// Sleep waits for d, or until ctx ends, whose error it then returns, or until something else has ended, if given.
func Sleep(ctx context.Context, d time.Duration, or ...<-chan struct{}) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	var other <-chan struct{}
	if len(or) > 0 {
		other = or[0]
	}
	select {
	case <-timer.C:
		return nil
	case <-other:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
