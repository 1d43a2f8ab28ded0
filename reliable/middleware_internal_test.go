package reliable

import (
	"context"
	"errors"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// noting is a middleware that writes down what happens.
func noting(log *[]string, name string) Middleware {
	return func(next Handler) Handler {
		*log = append(*log, "make "+name)
		return HandlerFunc(func(ctx context.Context, job *Job) error {
			*log = append(*log, name+" before")
			defer func() { *log = append(*log, name+" deferred") }()
			err := next.Handle(ctx, job)
			*log = append(*log, name+" after")
			return err
		})
	}
}

func TestTheFirstMiddlewareIsTheOutermost(t *testing.T) {
	t.Parallel()
	var log []string
	h, err := wrap(HandlerFunc(func(context.Context, *Job) error { log = append(log, "handler"); return errCard }),
		[]Middleware{noting(&log, "a"), noting(&log, "b")})
	require.NoError(t, err)
	require.Equal(t, errCard, h.Handle(t.Context(), &Job{}))
	require.Equal(t, []string{
		"make b", "make a", "a before", "b before", "handler", "b after", "b deferred", "a after", "a deferred",
	}, log)
}

func TestWithoutMiddlewareTheHandlerIsAsItWas(t *testing.T) {
	t.Parallel()
	mux := NewMux()
	h, err := wrap(mux, nil)
	require.NoError(t, err)
	require.Same(t, mux, h)
}

func TestMiddlewareThatMakesNoHandlerIsRefusedByItsIndex(t *testing.T) {
	t.Parallel()
	same := func(next Handler) Handler { return next }
	for name, c := range map[string]struct {
		list []Middleware
		want string
	}{
		"nil":                   {[]Middleware{same, nil, same, nil}, "Middleware[1] is nil: leave it out\nMiddleware[3] is nil: leave it out"},
		"returns nil":           {[]Middleware{same, func(Handler) Handler { return nil }}, "Middleware[1] returned a nil Handler: want one that calls the Handler it was given"},
		"returns a nil func":    {[]Middleware{func(Handler) Handler { return HandlerFunc(nil) }}, "Middleware[0] returned a nil Handler: want one that calls the Handler it was given"},
		"returns a nil Mux":     {[]Middleware{func(Handler) Handler { return (*Mux)(nil) }}, "Middleware[0] returned a nil Handler: want one that calls the Handler it was given"},
		"panics":                {[]Middleware{same, same, func(Handler) Handler { panic(errCard) }}, "Middleware[2] has panicked: card declined"},
		"panics with much text": {[]Middleware{func(Handler) Handler { panic("a\n\x1b[31m") }}, "Middleware[0] has panicked: a ␛[31m"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := wrap(HandlerFunc(nothing), c.list)
			require.EqualError(t, err, c.want)
		})
	}
}

func TestAMiddlewareNeverSeesANilHandler(t *testing.T) {
	t.Parallel()
	called := false
	h, err := wrap(nil, []Middleware{func(next Handler) Handler { called = true; return next }})
	require.NoError(t, err, "the nil Handler is told of by NewConsumer")
	require.Nil(t, h)
	require.False(t, called)
}

func TestPanicsAndGoexitGoThroughAllMiddleware(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		handler  HandlerFunc
		survives bool
		reason   string
	}{
		"panic":  {func(context.Context, *Job) error { panic("x") }, true, "panic: x"},
		"Goexit": {func(context.Context, *Job) error { runtime.Goexit(); return nil }, false, "handler ended its goroutine (runtime.Goexit)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log []string
			h, err := wrap(c.handler, []Middleware{noting(&log, "a"), noting(&log, "b")})
			require.NoError(t, err)
			got, returned := runOnOwnGoroutine(t, h.Handle)
			require.Equal(t, c.survives, returned)
			require.Equal(t, c.survives, got.survives)
			require.EqualError(t, got.err, c.reason)
			require.Equal(t, []string{"make b", "make a", "a before", "b before", "b deferred", "a deferred"}, log)
		})
	}
}

func TestAMiddlewareThatPanicsIsAFailureOfTheJob(t *testing.T) {
	t.Parallel()
	h, err := wrap(HandlerFunc(nothing), []Middleware{func(Handler) Handler {
		return HandlerFunc(func(context.Context, *Job) error { panic("middleware") })
	}})
	require.NoError(t, err)
	got, returned := runOnOwnGoroutine(t, h.Handle)
	require.True(t, returned)
	require.EqualError(t, got.err, "panic: middleware")
	require.Equal(t, opNack, verdictOf(got.err).op)
}

func TestAMiddlewareAroundAMuxCanKeepOrReplaceTheMissingHandler(t *testing.T) {
	t.Parallel()
	seen := func(change func(error) error) error {
		h, err := wrap(NewMux(), []Middleware{func(next Handler) Handler {
			return HandlerFunc(func(ctx context.Context, job *Job) error { return change(next.Handle(ctx, job)) })
		}})
		require.NoError(t, err)
		return h.Handle(t.Context(), &Job{Kind: "unheard.of"})
	}
	require.True(t, saysNoHandler(seen(func(err error) error { return err })))
	require.True(t, saysNoHandler(seen(func(err error) error { return errors.Join(errCard, err) })))
	require.False(t, saysNoHandler(seen(func(err error) error { return Discard(err) })), "a verdict decides")
	require.NoError(t, seen(func(error) error { return nil }))
}
