package idempotency

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/internal/script"
)

// BeginOptions are the optional settings of Begin; nil is valid.
type BeginOptions struct {
	// Request is what the effect is to be made from, as the body of an HTTP request. Only its SHA-256 is kept. A key that
	// was begun with another request is refused with an [*OtherRequestError].
	Request []byte
	// Context is what the permit's context ends with, too, and whose values it has. Default: none. It is not the context
	// of the call: Begin's own ctx bounds Begin alone.
	Context context.Context
	// Held, where the effect is one of a job that this process holds: see [Held].
	Held *Held
}

// A Held is the lease of a job that an effect is begun under. Begin then also requires that the lease is the job's, and the
// guard leaves it to the job's heartbeat to keep the record: see [Permit.Ride]. Package reliable fills it in: a handler
// calls Begin, Once or OnceAndAck of its job.
type Held struct {
	ID    string // the job's, in the partition of the record
	Token string // its lease's
	// Deadline is until when the lease is known to be held.
	Deadline time.Time
	// Once keeps the record with the job: one for all its effects, under the job's ID and incarnation, owned by its lease.
	// The key given to Begin is the effect's name then.
	Once        bool
	Incarnation string // when the job was enqueued: another job of the same ID begins its effects anew
}

// An Answer is what Begin found.
type Answer struct {
	// Permit is the right to run the effect, and to commit it. Nil where the effect is done.
	Permit *Permit
	// Done says that the effect is done; Result is what was committed.
	Done   bool
	Result []byte
	// InDoubt says that a holder began the effect at Since, did not finish, and that its lease is over: the effect may
	// have happened. Permit has taken the record over. With the policy [Redo] the effect is run again; with [Ask] the
	// caller finds out first, and then runs it, or commits what it has found.
	InDoubt bool
	// Since is when the effect was begun first, by Redis' clock; zero for one that is begun now.
	Since time.Time

	key  string
	ask  bool    // the guard's policy
	ride *Permit // see Rides
}

// Rides is, for package reliable, the permit whose record rides on the job's lease; nil where none does. That of an effect
// which is done can only ride.
func (a *Answer) Rides() *Permit { return a.ride }

// Begin asks for the right to run the effect of a key: 1 to 256 bytes of valid UTF-8 without control characters. It
// answers with a Permit, which is fresh or in doubt, or with the result of an effect that is done.
//
// Errors: [*InFlightError], somebody else holds the key; [*OtherRequestError]; for a job's effect [ErrNotOwner], its lease
// is lost, and [ErrCancelled]. After any other error, as when Redis cannot be reached, nothing is known, and the effect
// must not run. An [*UnknownError], which a caller gets whose context ended too early, may have begun it: the guard takes
// that back by itself as soon as it learns of it, within a lease. Where it cannot, the key is in doubt when the lease is over.
func (g *Guard) Begin(ctx context.Context, key string, o *BeginOptions) (*Answer, error) {
	var opts BeginOptions
	if o != nil {
		opts = *o
	}
	p, err := g.permit(key, &opts)
	if err != nil {
		return nil, err
	}
	lease, id, token := g.opts.Lease, "", ""
	owner, of := "", ""
	if h := opts.Held; h != nil {
		lease, id, token = time.Until(h.Deadline), h.ID, h.Token
		if h.Once {
			owner, of = h.Token, h.Incarnation
		}
	}
	print := "-"
	if opts.Request != nil {
		sum := sha256.Sum256(opts.Request)
		print = hex.EncodeToString(sum[:])
	}
	p.print = print
	args := []any{p.effect, print, max(lease.Milliseconds(), 0), g.opts.Retention.Milliseconds(), owner, of, id, token, maxEffects}
	began := time.Now() // not later than any try: the stored answer to a repeat must not make the lease longer
	call := &script.Call{Op: "begin", Script: beginScript, Args: args, Records: []string{p.record}}
	err = g.sessions.Do(ctx, call)
	if err == nil {
		err = call.Err
	}
	if err != nil {
		var unknown *UnknownError
		if errors.As(err, &unknown) && owner == "" { // a job's own record may have been begun again by its holder since
			g.takeBack(p, call, unknown)
		}
		return nil, err
	}
	g.tidy.Do(func() { g.later(g.trim) })
	return g.answer(ctx, p, call, began, &opts)
}

// trim forgets the sessions of processes that are long gone. A queue's sweepers do that too, but a name that only guards
// use has none.
func (g *Guard) trim(ctx context.Context) {
	for cursor := "0"; ; {
		next, _, err := g.sessions.Trim(ctx, cursor, time.Hour)
		if err != nil || next == "0" {
			return // the next process tries again
		}
		cursor = next
	}
}

// takeBack ends what a Begin has begun whose caller did not wait for the answer: nobody runs the effect.
func (g *Guard) takeBack(p *Permit, call *script.Call, unknown *UnknownError) {
	g.later(func(ctx context.Context) {
		if unknown.Resolve(ctx) != nil {
			return // it did not begin, or nobody knows
		}
		code, rest, _ := strings.Cut(call.Rest, " ")
		if code == "f" || code == "u" {
			p.owner, _, _ = strings.Cut(rest, " ")
			g.giveUp(ctx, p, code == "u")
		}
	})
}

// later does what nobody waits for, for a lease at most.
func (g *Guard) later(do func(ctx context.Context)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return
	}
	g.all.Go(func() {
		ctx, cancel := context.WithTimeout(g.ctx, g.opts.Lease)
		defer cancel()
		do(ctx)
	})
}

// giveUp ends what nobody has run; an earlier doubt stays. It may fail: that leaves the key to the end of its lease.
func (g *Guard) giveUp(ctx context.Context, p *Permit, inDoubt bool) {
	happened := "no"
	if inDoubt {
		happened = "maybe"
	}
	_ = g.sessions.Do(ctx, &script.Call{Op: "give up", Script: giveUpScript, Args: []any{p.effect, p.owner, happened}, Records: []string{p.record}})
}

// result is that of a done effect: in the reply, or, where that was lost, in the record.
func (g *Guard) result(ctx context.Context, p *Permit, reply []any) ([]byte, error) {
	if len(reply) < 3 {
		req := &script.Request{Script: lookScript, Args: []any{p.effect}, Records: []string{p.record}}
		if err := g.runner.Repeat(ctx, req); err != nil {
			return nil, err
		}
		if len(req.Reply) != 3 || req.Reply[1] != "d" {
			return nil, fmt.Errorf("begin %q: it was done, and its record is gone: %w", p.key, ErrNeverKnown)
		}
		reply = req.Reply
	}
	text, ok := reply[2].(string)
	if !ok {
		return nil, &script.ReplyError{Script: beginScript.Name, Reply: reply}
	}
	return []byte(text), nil
}

// permit makes the permit that a Begin may answer with.
func (g *Guard) permit(key string, o *BeginOptions) (*Permit, error) {
	p := &Permit{guard: g, key: key}
	if o.Held == nil || !o.Held.Once {
		if err := keys.ValidateID("idempotency key", key); err != nil {
			return nil, err
		}
		p.record = g.partition.Guard(key)
		return p, nil
	}
	if err := keys.ValidateName("effect", key); err != nil {
		return nil, err
	}
	if o.Held.Incarnation == "" {
		return nil, fmt.Errorf("effect %q of job %q: the incarnation is empty: want when the job was enqueued", key, o.Held.ID)
	}
	p.key, p.effect, p.record = o.Held.ID+":"+key, key, g.partition.Once(o.Held.ID)
	return p, nil
}

func (g *Guard) answer(ctx context.Context, p *Permit, call *script.Call, began time.Time, o *BeginOptions) (*Answer, error) {
	code, rest, _ := strings.Cut(call.Rest, " ")
	switch code {
	case "f", "u":
		owner, since, _ := strings.Cut(rest, " ")
		a := &Answer{Permit: p, InDoubt: code == "u", key: p.key, ask: g.opts.InDoubt == Ask}
		p.since, p.begun = millis(since), time.Now()
		if a.InDoubt {
			a.Since = p.since
			if g.opts.OnInDoubt != nil {
				g.opts.OnInDoubt(p.key, a.Since)
			}
		}
		p.owner = owner
		if o.Held != nil {
			a.ride = p
		}
		if call.Reply != nil {
			began = call.SentAt
		}
		if err := g.hold(p, began, o); err != nil {
			g.later(func(ctx context.Context) { g.giveUp(ctx, p, a.InDoubt) })
			return nil, err
		}
		return a, nil
	case "d":
		result, err := g.result(ctx, p, call.Reply)
		if err != nil {
			return nil, err
		}
		a := &Answer{Done: true, Result: result, Since: millis(rest), key: p.key}
		if o.Held != nil && o.Held.Once { // it was taken over, so that it lives on with the job
			p.owner, p.ended, a.ride = o.Held.Token, true, p
		}
		return a, nil
	case "w":
		ms, _ := strconv.ParseInt(rest, 10, 64)
		return nil, &InFlightError{Key: p.key, Wait: time.Duration(max(ms, 1)) * time.Millisecond}
	case "p":
		return nil, &OtherRequestError{Key: p.key}
	case "n":
		return nil, fmt.Errorf("begin %q: %w", p.key, ErrNotOwner)
	case "c":
		return nil, ErrCancelled
	case "b":
		return nil, fmt.Errorf("begin %q: what its record %s holds cannot be read: somebody else wrote it", p.key, p.record)
	case "m":
		return nil, &TooManyError{Key: o.Held.ID, Limit: maxEffects}
	}
	return nil, &script.ReplyError{Script: beginScript.Name, Reply: call.Rest}
}

func millis(text string) time.Time {
	ms, _ := strconv.ParseInt(text, 10, 64)
	return time.UnixMilli(ms)
}
