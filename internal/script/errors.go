package script

import (
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Sentinels for what a Redis server may refuse; a [*ServerError] is one of them by errors.Is.
var (
	ErrOutOfMemory = errors.New("Redis is out of memory (maxmemory) and refused the write")
	ErrMisconf     = errors.New("Redis refuses writes because it cannot save to disk")
	ErrAuth        = errors.New("Redis refused the credentials or the permissions of this user")
)

// A ServerError is an error reply that is not repeated: the call did nothing.
type ServerError struct {
	Code string // the first word of the reply, as OOM, MISCONF, NOPERM, WRONGTYPE, ERR
	Err  error
}

func (e *ServerError) Error() string { return e.Err.Error() }

// Unwrap returns the client's error.
func (e *ServerError) Unwrap() error { return e.Err }

// Is matches the sentinels above by the reply's code.
func (e *ServerError) Is(target error) bool {
	switch target {
	case ErrOutOfMemory:
		return e.Code == "OOM"
	case ErrMisconf:
		return e.Code == "MISCONF"
	case ErrAuth:
		return e.Code == "NOAUTH" || e.Code == "WRONGPASS" || e.Code == "NOPERM"
	}
	return false
}

// A ReplyError says that a script answered in a shape or with a code that this version does not know.
type ReplyError struct {
	Script string
	Reply  any
}

func (e *ReplyError) Error() string {
	return fmt.Sprintf("script %s answered %.200q, which this version does not understand", e.Script, fmt.Sprint(e.Reply))
}

// outcome is what the end of one try says about whether the command ran.
type outcome int

const (
	answered    outcome = iota // a reply came
	notExecuted                // the server, or the missing connection, says that it did not run
	unknown                    // sent, perhaps run, perhaps to run later
	refused                    // an error reply that repeating does not help
)

// notExecutedCodes start replies that say: not now, and nothing was done.
var notExecutedCodes = map[string]bool{
	"LOADING": true, "READONLY": true, "MASTERDOWN": true, "CLUSTERDOWN": true, "TRYAGAIN": true,
	"MOVED": true, "ASK": true, "NOREPLICAS": true, "BUSY": true, "NOSCRIPT": true, "UNBLOCKED": true,
}

// inScript finds the code of an error that Redis before 7 wraps: `ERR Error running script (…): @user_script:3: -OOM …`.
var inScript = regexp.MustCompile(`@user_script:\s*\d+:\s*-?([A-Z]+)\b`)

func codeOf(message string) string {
	code, _, _ := strings.Cut(message, " ")
	if code == "ERR" {
		if m := inScript.FindStringSubmatch(message); m != nil {
			return m[1]
		}
		switch {
		case strings.HasPrefix(message, "ERR max number of clients"):
			return "MAXCLIENTS"
		case strings.HasPrefix(message, "ERR The user executing the script can't run this command"), // Redis 7.0
			strings.Contains(message, "ACL failure in script"):
			return "NOPERM"
		}
	}
	return code
}

func classify(err error) (outcome, error) {
	if err == nil {
		return answered, nil
	}
	var reply redis.Error
	if errors.As(err, &reply) && !errors.Is(err, redis.Nil) {
		code := codeOf(reply.Error())
		if notExecutedCodes[code] || code == "MAXCLIENTS" {
			return notExecuted, err
		}
		return refused, &ServerError{Code: code, Err: err}
	}
	var odd *ReplyError
	if errors.As(err, &odd) {
		return refused, err // asked again it would answer the same
	}
	var records *RecordError
	if errors.As(err, &records) {
		return refused, err
	}
	if errors.Is(err, redis.ErrClosed) {
		return refused, fmt.Errorf("the Redis client is closed: %w", err)
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" || errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) {
		return notExecuted, err
	}
	return unknown, err
}

// NotExecuted reports whether err says that the command was not run: no connection could be made, or the server said
// so itself (loading, read-only, busy and their like). Any other error leaves it open.
func NotExecuted(err error) bool {
	what, _ := classify(err)
	return what == notExecuted
}

// Typed makes the error of a plain command what a script's would be: an error reply becomes a [*ServerError].
func Typed(err error) error {
	_, typed := classify(err)
	return typed
}
