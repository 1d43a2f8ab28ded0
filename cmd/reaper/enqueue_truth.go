package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leaseq/leaseq/reliable"
)

// truths asks what became of the calls of one batch, for a time that all its items share.
type truths struct {
	ctx    context.Context
	cancel context.CancelFunc
}

// newTruths begins to count the time at once.
func newTruths(patience time.Duration) truths {
	var t truths
	t.ctx, t.cancel = context.WithTimeout(context.Background(), patience)
	return t
}

// of is what became of a job whose enqueue returned err: err itself where that is not known.
func (t *truths) of(err error) error {
	var unknown *reliable.UnknownError
	if !errors.As(err, &unknown) {
		return err
	}
	switch truth := unknown.Resolve(t.ctx); {
	case t.ctx.Err() != nil && errors.Is(truth, t.ctx.Err()):
		return err
	case errors.Is(truth, reliable.ErrNeverRan):
		return fmt.Errorf("%w: %w", truth, unknown.Cause)
	default:
		return truth
	}
}

// isUnknown reports whether it is not known, or can never be known, what became of a call.
func isUnknown(err error) bool {
	var unknown *reliable.UnknownError
	return errors.As(err, &unknown) || errors.Is(err, reliable.ErrNeverKnown)
}
