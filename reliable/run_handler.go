package reliable

import "context"

// runHandler runs h for one job and reports how that ended to finished, which it calls exactly once, on this
// goroutine and in a deferred function. err is what h returned, or a *panicError if h has panicked or called
// runtime.Goexit. survives is false in the last case: this goroutine is ending, finished is the last code of ours
// that runs on it but for other deferred calls, and the caller must start another goroutine in its place. A Goexit
// cannot be stopped. If survives is true, runHandler returns after finished.
//
// finished must not panic.
func runHandler(ctx context.Context, h Handler, job *Job, finished func(err error, survives bool)) {
	var err error
	survives := false
	defer func() {
		if !survives {
			err = exited()
		}
		finished(err, survives)
	}()
	err = catchPanic(ctx, h, job)
	survives = true
}

// catchPanic calls h and turns a panic into a *panicError. It returns unless h has called runtime.Goexit.
func catchPanic(ctx context.Context, h Handler, job *Job) (err error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		// nil is a Goexit, which goes on whatever is done here, or a panic(nil) under GODEBUG=panicnil=1.
		err = panicked(recover())
	}()
	err = h.Handle(ctx, job)
	returned = true
	return err
}
