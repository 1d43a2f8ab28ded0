package main

import (
	"encoding/base64"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/leaseq/leaseq/reliable"
)

// The JSON of one job, in `list`, `dead` and `show` with --json, and in the lines of `export` and `import`. Fields are only
// ever added. Bytes that are no UTF-8 are in the twin whose name ends in _base64. What only tells, and is not read by an
// import, is marked.
type jobJSON struct {
	ID    string         `json:"id"`
	Place reliable.Place `json:"place"`
	At    int64          `json:"at_ms"` // due, run out, died or done, on Redis' clock
	When  string         `json:"at"`    // the same, told
	In    int64          `json:"in_ms"` // until then, told

	Kind          string            `json:"kind"`
	Payload       *string           `json:"payload,omitempty"`
	PayloadBase64 *string           `json:"payload_base64,omitempty"`
	PayloadSize   int               `json:"payload_size"` // told
	Headers       map[string]string `json:"headers,omitempty"`
	HeadersBase64 map[string]string `json:"headers_base64,omitempty"`
	EnqueuedAt    int64             `json:"enqueued_us"`
	Enqueued      string            `json:"enqueued"`                // told
	Undecodable   string            `json:"undecodable,omitempty"`   // why, told
	RecordBase64  *string           `json:"record_base64,omitempty"` // of one that does not decode
	Failures      int               `json:"failures"`
	Expiries      int               `json:"expiries"`
	Redrives      int               `json:"redrives"`
	Attempt       int               `json:"attempt"` // told
	MaxRetries    *int              `json:"max_retries,omitempty"`
	MaxExpiries   *int              `json:"max_expiries,omitempty"`
	NotAfter      *int64            `json:"not_after_ms,omitempty"`
	Class         string            `json:"class,omitempty"` // told
	Errors        []errorJSON       `json:"errors,omitempty"`
	Stack         string            `json:"stack,omitempty"`
	StackBase64   *string           `json:"stack_base64,omitempty"`
	Holder        string            `json:"holder,omitempty"`     // told
	Fence         int64             `json:"fence,omitempty"`      // told
	Cancelling    bool              `json:"cancelling,omitempty"` // told
	Result        *string           `json:"result,omitempty"`     // of a job in done, told
	ResultBase64  *string           `json:"result_base64,omitempty"`
}

type errorJSON struct {
	At      int64  `json:"at_ms"`
	When    string `json:"at"` // told
	Attempt int    `json:"attempt"`
	Holder  string `json:"holder"`
	Reason  string `json:"reason"`
	Class   string `json:"class,omitempty"`
}

const clockForm = "2006-01-02T15:04:05.000Z07:00"

func clock(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(clockForm)
}

// bytesJSON is a text, or its base64.
func bytesJSON(bytes []byte) (text, encoded *string) {
	if utf8.Valid(bytes) {
		return new(string(bytes)), nil
	}
	return nil, new(base64.StdEncoding.EncodeToString(bytes))
}

// newJobJSON tells of a job; its payload only where whole is said.
func newJobJSON(info *reliable.Info, whole bool) jobJSON {
	out := jobJSON{
		ID: info.ID, Place: info.Place, When: clock(info.At), In: info.In.Milliseconds(), Kind: info.Kind, PayloadSize: info.PayloadSize,
		EnqueuedAt: info.EnqueuedAt.UnixMicro(), Enqueued: clock(info.EnqueuedAt),
		Failures: info.Failures, Expiries: info.Expiries, Redrives: info.Redrives, Attempt: info.Attempt,
		MaxRetries: info.MaxRetries, MaxExpiries: info.MaxExpiries, Class: string(info.Class),
		Holder: info.Holder, Fence: info.Fence, Cancelling: info.Cancelling,
	}
	if !info.At.IsZero() {
		out.At = info.At.UnixMilli()
	}
	if !info.NotAfter.IsZero() {
		out.NotAfter = new(info.NotAfter.UnixMilli())
	}
	if info.Undecoded != nil {
		out.Undecodable, out.EnqueuedAt, out.Enqueued = info.Undecoded.Error(), 0, ""
		if whole {
			out.RecordBase64 = new(base64.StdEncoding.EncodeToString(info.Payload))
		}
	} else if whole && info.Place != reliable.Done {
		out.Payload, out.PayloadBase64 = bytesJSON(info.Payload)
	}
	if info.EnqueuedAt.IsZero() {
		out.EnqueuedAt = 0 // of a job in done nobody knows any more
	}
	if whole && info.Result != nil {
		out.Result, out.ResultBase64 = bytesJSON(info.Result)
	}
	for name, value := range info.Headers {
		if utf8.ValidString(value) && utf8.ValidString(name) {
			out.Headers = with(out.Headers, name, value)
		} else {
			out.HeadersBase64 = with(out.HeadersBase64, name, base64.StdEncoding.EncodeToString([]byte(value)))
		}
	}
	for _, f := range info.Errors {
		out.Errors = append(out.Errors, errorJSON{
			At: f.At.UnixMilli(), When: clock(f.At), Attempt: f.Attempt, Holder: f.Holder, Reason: f.Reason, Class: string(f.Class),
		})
	}
	if text, encoded := bytesJSON([]byte(info.Stack)); encoded != nil {
		out.StackBase64 = encoded
	} else {
		out.Stack = *text
	}
	return out
}

func with(m map[string]string, name, value string) map[string]string {
	if m == nil {
		m = map[string]string{}
	}
	m[name] = value
	return m
}

// info reads what an export has written.
func (j *jobJSON) info() (reliable.Info, error) {
	info := reliable.Info{
		ID: j.ID, Place: j.Place, At: time.UnixMilli(j.At), Kind: j.Kind, EnqueuedAt: time.UnixMicro(j.EnqueuedAt).UTC(),
		Failures: j.Failures, Expiries: j.Expiries, Redrives: j.Redrives, MaxRetries: j.MaxRetries, MaxExpiries: j.MaxExpiries,
		Headers: j.Headers, Stack: j.Stack,
	}
	var errs []error
	decode := func(field, text string) []byte {
		bytes, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s is no base64: %w", field, err))
		}
		return bytes
	}
	switch {
	case j.At == 0:
		errs = append(errs, errors.New("at_ms is missing"))
	case j.Payload != nil && j.PayloadBase64 != nil || j.RecordBase64 != nil && (j.Payload != nil || j.PayloadBase64 != nil):
		errs = append(errs, errors.New("want one of payload, payload_base64 and record_base64"))
	case j.RecordBase64 != nil:
		info.Payload, info.Undecoded = decode("record_base64", *j.RecordBase64), errExported
	case j.PayloadBase64 != nil:
		info.Payload = decode("payload_base64", *j.PayloadBase64)
	case j.Payload != nil:
		info.Payload = []byte(*j.Payload)
	default:
		errs = append(errs, errors.New("payload is missing"))
	}
	for name, text := range j.HeadersBase64 {
		info.Headers = with(info.Headers, name, string(decode("headers_base64", text)))
	}
	if j.StackBase64 != nil {
		info.Stack = string(decode("stack_base64", *j.StackBase64))
	}
	if j.NotAfter != nil {
		info.NotAfter = time.UnixMilli(*j.NotAfter)
	}
	for _, e := range j.Errors {
		info.Errors = append(info.Errors, reliable.Failure{
			At: time.UnixMilli(e.At), Attempt: e.Attempt, Holder: e.Holder, Reason: e.Reason, Class: reliable.DeadClass(e.Class),
		})
	}
	return info, errors.Join(errs...)
}

// errExported marks a record that was exported as it stood, since it does not decode.
var errExported = errors.New("it did not decode when it was exported")
