package reliable

import (
	"fmt"
	"reflect"

	"github.com/leaseq/leaseq/internal/wire"

	"github.com/leaseq/leaseq/lease"
)

// A Kinder is a type of jobs: a value of it is the payload, and Kind names the sort of job, 1 to 128 of
// [A-Za-z0-9._:/-]. Kind must return the same for every value of the type. It is asked of a fresh value, never of a
// nil pointer. No kind is derived from the name of a Go type, so types can be renamed; a payload in a new format is a
// new kind ("order.close.v2").
type Kinder interface{ Kind() string }

// kindOf returns T's kind, asked of a fresh value, or an error where T has none or one that is not valid.
func kindOf[T Kinder]() (kind string, err error) {
	value, _, err := fresh[T]()
	if err != nil {
		return "", err
	}
	kind, err = askKind(*value)
	if err == nil {
		err = wire.ValidateKind(kind)
	}
	if err != nil {
		return "", fmt.Errorf("kind of %v: %w", reflect.TypeFor[T](), err)
	}
	return kind, nil
}

// askKind turns a panic in Kind into an error: a fresh value can have fields that its Kind wants filled.
func askKind(k Kinder) (kind string, err error) {
	defer func() {
		if value := recover(); value != nil {
			err = fmt.Errorf("Kind of a fresh value has panicked: %s", reasonText(panicText(value), maxReason))
		}
	}()
	return k.Kind(), nil
}

// fresh returns a new T that is not nil, and the pointer to decode a payload with. For a pointer type that is the
// pointer itself, so that no payload ("null" in JSON) makes it nil.
func fresh[T any]() (value *T, target any, err error) {
	value = new(T)
	t := reflect.TypeFor[T]()
	switch t.Kind() {
	case reflect.Pointer:
		*value = reflect.New(t.Elem()).Convert(t).Interface().(T)
		return value, *value, nil
	case reflect.Map:
		*value = reflect.MakeMap(t).Interface().(T)
	case reflect.Slice:
		*value = reflect.MakeSlice(t, 0, 0).Interface().(T)
	case reflect.Interface, reflect.Func, reflect.Chan, reflect.UnsafePointer:
		return nil, nil, fmt.Errorf("%v is a type of sort %v: want one that a payload decodes into", t, t.Kind())
	default:
	}
	return value, value, nil
}

// decodeJob decodes the job's payload with the codec of its queue. The error is a [*BadPayloadError].
func decodeJob[T any](job *Job) (T, error) {
	codec := Codec(JSON)
	if job.queue != nil { // else somebody has made it for a test
		codec = job.queue.opts.Codec
	}
	value, target, err := fresh[T]()
	if err == nil {
		err = codec.Unmarshal(job.Payload, target)
	}
	if err != nil {
		var none T
		return none, &BadPayloadError{Kind: job.Kind, Err: fmt.Errorf("%s: %w", codec.Name(), err)}
	}
	return *value, nil
}

// A BadPayloadError says that a job's payload does not decode into the type of its handler. No further try can
// change that, so as a handler's returned error it buries the job, unless an outer verdict says otherwise. The
// payload is kept as it is.
type BadPayloadError struct {
	// Kind is the job's kind.
	Kind string
	// Err is the codec's error, with the codec's name before it.
	Err error
}

// Error returns "bad payload: " and the codec's error. It is the reason kept with the dead job.
func (e *BadPayloadError) Error() string { return "bad payload: " + e.Err.Error() }

// Unwrap returns Err.
func (e *BadPayloadError) Unwrap() error { return e.Err }

func (e *BadPayloadError) givenVerdict() verdict {
	return verdict{op: opBury, class: lease.ClassBadPayload}
}
