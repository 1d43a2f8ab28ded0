package reliable

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/leaseq/leaseq/internal/wire"
)

// ErrNoHandler is in the error of [Mux.Handle] for a job whose kind has no handler there. A Consumer does not treat
// it as a failure at first, since a deploy may be under way and other processes may know the kind: for 5 minutes from
// when the process first saw that kind, it releases such jobs with a delay that grows from 1 s to 30 s. Then it nacks
// them.
var ErrNoHandler = errors.New("no handler")

// HandleOptions are the settings of one kind in a [Mux]. nil and the zero value are the defaults.
type HandleOptions struct {
	// Timeout is how long one run of a job of this kind may take. Then the handler's context ends with the cause
	// [ErrJobTimeout]. It stands in for the Consumer's JobTimeout, and may be longer. 0: the Consumer's.
	Timeout time.Duration
}

func (o *HandleOptions) validate() error {
	if o != nil && o.Timeout < 0 {
		return fmt.Errorf("Timeout is %v: want more than 0, or 0 for the Consumer's JobTimeout", o.Timeout)
	}
	return nil
}

func (o *HandleOptions) timeout() time.Duration {
	if o == nil {
		return 0
	}
	return o.Timeout
}

// A Mux is a [Handler] that hands each job to the handler of its kind. Kinds match exactly, never by prefix. Handlers
// can be added at any time, also while a Consumer runs, and are never taken away. The zero Mux is ready for use.
type Mux struct {
	mu     sync.RWMutex
	routes map[string]route
}

type route struct {
	handler HandlerFunc
	timeout time.Duration // 0: none of its own
	batch   int           // jobs a call, if it is a batch handler
}

// NewMux returns a Mux without handlers.
func NewMux() *Mux { return &Mux{} }

// Handle adds a typed handler to mux, for the kind that T names (see [Kinder]). fn gets the job and its payload
// decoded by the queue's [Codec], into a fresh value each time; if T is a pointer type, it is never nil. A payload
// that does not decode never reaches fn: see [BadPayloadError]. nil options are fine.
//
// The error names everything that is wrong: a kind that is not valid or has a handler already, a T that nothing
// decodes into, a nil mux or fn, options out of range. After an error mux is as it was.
func Handle[T Kinder](mux *Mux, fn func(ctx context.Context, job *Job, payload T) error, o *HandleOptions) error {
	var errs []error
	if mux == nil {
		errs = append(errs, errors.New("mux is nil: want one made by NewMux"))
	}
	if fn == nil {
		errs = append(errs, errors.New("fn is nil: want a function"))
	}
	kind, err := kindOf[T]()
	if err := errors.Join(append(errs, err, o.validate())...); err != nil {
		return fmt.Errorf("reliable.Handle: %w", err)
	}
	typed := func(ctx context.Context, job *Job) error {
		payload, err := decodeJob[T](job)
		if err != nil {
			return err
		}
		return fn(ctx, job, payload)
	}
	if err := mux.add(kind, route{handler: typed, timeout: o.timeout()}); err != nil {
		return fmt.Errorf("reliable.Handle: %w", err)
	}
	return nil
}

// HandleFunc adds an untyped handler for a kind, which gets the payload as it was enqueued. nil options are fine. The
// error names everything that is wrong: a kind that is not valid or has a handler already, a nil fn, options out of
// range. After an error the Mux is as it was.
func (m *Mux) HandleFunc(kind string, fn HandlerFunc, o *HandleOptions) error {
	var errs []error
	if fn == nil {
		errs = append(errs, errors.New("fn is nil: want a function"))
	}
	errs = append(errs, wire.ValidateKind(kind), o.validate())
	err := errors.Join(errs...)
	if err == nil {
		err = m.add(kind, route{handler: fn, timeout: o.timeout()})
	}
	if err != nil {
		return fmt.Errorf("reliable.Mux.HandleFunc: %w", err)
	}
	return nil
}

func (m *Mux) add(kind string, r route) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, taken := m.routes[kind]; taken {
		return fmt.Errorf("kind %q has a handler already: want one handler a kind", kind)
	}
	if m.routes == nil {
		m.routes = make(map[string]route)
	}
	m.routes[kind] = r
	return nil
}

func (m *Mux) route(kind string) (r route, ok bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	r, ok = m.routes[kind]
	return r, ok
}

// Handle runs the handler of the job's kind and returns what it returns. Where there is none it returns an error that
// is [ErrNoHandler] and names the kind. If the kind has a Timeout and ctx does not end before that, the handler's
// context does.
func (m *Mux) Handle(ctx context.Context, job *Job) error {
	r, ok := m.route(job.Kind)
	if !ok {
		return fmt.Errorf("%w for kind %q", ErrNoHandler, job.Kind)
	}
	if r.timeout > 0 {
		// A Consumer may have set the same end already; the sooner one stays, with its cause, and has the only timer.
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, r.timeout, ErrJobTimeout)
		defer cancel()
	}
	return r.handler(ctx, job)
}

// Kinds returns the kinds that have a handler, sorted.
func (m *Mux) Kinds() []string {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return slices.Sorted(maps.Keys(m.routes))
}

// timeoutFor returns the Timeout of a kind, or 0 where it has none of its own. A Consumer asks for it, so that it also
// stops extending the lease then.
func (m *Mux) timeoutFor(kind string) time.Duration {
	r, _ := m.route(kind)
	return r.timeout
}
