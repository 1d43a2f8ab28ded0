package idempotency

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// DoOptions are the optional settings of [Do]; nil is valid.
type DoOptions[T any] struct {
	// Request: see [BeginOptions].
	Request []byte
	// Ask finds out, where the key is in doubt and the guard's policy is [Ask], whether the effect happened: it asks the
	// downstream, and returns the effect's result and true, or false where it certainly did not happen. An error leaves the
	// key in doubt. Without it Do returns an [*InDoubtError] then.
	Ask func(ctx context.Context, since time.Time) (result T, happened bool, err error)
	// Commit, in place of the permit's own, writes down that the effect is done, as together with something else. It gets
	// the result as it is stored. Run ends the permit after it. Default: [Permit.Commit].
	Commit func(ctx context.Context, result []byte) error
}

// endBound is how long Do may take, after its context or the permit's ended, to write down what became of the effect;
// abandonBound how long then, where that failed, to give the permit up.
const (
	endBound     = 10 * time.Second
	abandonBound = time.Second
)

// Do runs fn once for a key, and returns its result; later calls get the same result from the record, as JSON keeps it.
// fn's context ends with the permit's, and with ctx.
//
// An error of fn leaves the key in doubt, since the effect may have happened all the same, and the next Do runs it again,
// or asks; with [NotDone] around it the key is absent again, unless an earlier run has left it in doubt. A panic of fn
// leaves the key in doubt too. Where the effect ran and that could not be written down, as with a result that is too large,
// the result is returned together with an error that is [ErrRan]: the key is in doubt then. Errors of [Guard.Begin] are
// returned as they are; fn did not run.
func Do[T any](ctx context.Context, g *Guard, key string, fn func(ctx context.Context) (T, error), o *DoOptions[T]) (T, error) {
	var request []byte
	if o != nil {
		request = o.Request
	}
	a, err := g.Begin(ctx, key, &BeginOptions{Request: request})
	if err != nil {
		var none T
		return none, err
	}
	return Run(ctx, a, fn, o)
}

// Run is what [Do] does once Begin has answered: it replays the result of a done effect, or runs fn and ends the permit.
func Run[T any](ctx context.Context, a *Answer, fn func(ctx context.Context) (T, error), o *DoOptions[T]) (T, error) {
	var opts DoOptions[T]
	if o != nil {
		opts = *o
	}
	var none T
	if a.Done {
		return replay[T](a.key, a.Result)
	}
	p, doubt, ended := a.Permit, a.InDoubt, false
	if opts.Commit == nil {
		opts.Commit = p.Commit
	}
	defer func() {
		if !ended { // fn panicked, or called Goexit
			_ = late(ctx, endBound, p.Abandon) // it is in doubt anyway, once the lease is over
			p.end()
		}
	}()
	run, stop := context.WithCancelCause(p.Context())
	defer stop(nil)
	defer context.AfterFunc(ctx, func() { stop(context.Cause(ctx)) })()

	if a.InDoubt && a.ask {
		if opts.Ask == nil {
			ended = true
			return finish(ctx, p, none, &InDoubtError{Key: a.key, Since: a.Since}, nil, p.Abandon)
		}
		result, happened, err := opts.Ask(run, a.Since)
		if err != nil || happened {
			ended = true
			return finish(ctx, p, result, err, opts.Commit, p.Abandon)
		}
		doubt = false
	}
	var result T
	var err error
	if err = errors.Join(context.Cause(run), context.Cause(ctx)); err == nil {
		result, err = fn(run)
	} else {
		err = NotDone(err) // it was too late to begin
	}
	ended = true
	giveUp := p.Abandon
	if errors.Is(err, ErrNotDone) && !doubt { // else it may have happened before, whatever came of it now
		giveUp = p.Abort
	}
	return finish(ctx, p, result, err, opts.Commit, giveUp)
}

// late runs what must be tried though ctx may have ended.
func late(ctx context.Context, bound time.Duration, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bound)
	defer cancel()
	return do(ctx)
}

// finish writes down what became of an effect.
func finish[T any](ctx context.Context, p *Permit, result T, err error, commit func(context.Context, []byte) error, giveUp func(context.Context) error) (T, error) {
	if err != nil {
		err = errors.Join(err, late(ctx, endBound, giveUp))
		p.end()
		return result, err
	}
	text, err := json.Marshal(result)
	if err == nil {
		err = late(ctx, endBound, func(ctx context.Context) error { return commit(ctx, text) })
	}
	switch {
	case err == nil:
		p.end()
		return result, nil
	case p.riding() && errors.As(err, new(*UnknownError)): // the job's consumer, or Resolve, brings it to its end
	default:
		_ = late(ctx, abandonBound, p.Abandon)
		p.end() // whatever came of that: nobody keeps it alive any more
	}
	return result, fmt.Errorf("%w: %q is in doubt: %w", ErrRan, p.key, err)
}

func replay[T any](key string, text []byte) (T, error) {
	var result T
	if err := json.Unmarshal(text, &result); err != nil {
		return result, fmt.Errorf("the stored result of %q is no %T: %w", key, result, err)
	}
	return result, nil
}
