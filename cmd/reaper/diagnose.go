package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"

	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/internal/script"
)

// A diagnosis is what an error of a server means to whoever has to do something about it.
type diagnosis struct {
	problem string // goes on after "Redis at …"; "" for an answer that has nothing to do with access
	advice  string // what would be right; "" where nothing is known beyond the error itself

	// final is true where nothing but a change of the configuration, here or at the server, heals it.
	final bool
}

// diagnose finds out what an error means. What it says after a connection has been made is about that error only.
func (e *endpoint) diagnose(err error) diagnosis {
	fresh := !e.connected.Load()
	var file *fileError
	switch {
	case redis.IsAuthError(err):
		return e.diagnoseLogin(err)
	case fresh && isReply(err) && e.failover != nil && errors.Is(err, redis.Nil):
		return diagnosis{"is not known to them", "want master_name as it is in the Sentinels' own line sentinel monitor <name> …", true}
	case fresh && isReply(err) && !isForbidden(err) && e.failover != nil:
		advice := "are these Sentinels? They listen on port 26379 unless told otherwise"
		if e.database > 0 {
			advice += "; or it refuses the database: " + e.adviceDatabase()
		}
		return diagnosis{"cannot be asked for", advice, true}
	case fresh && isReply(err) && e.database > 0 && !script.NotExecuted(err):
		return diagnosis{fmt.Sprintf("refuses database %d", e.database), e.adviceDatabase(), true}
	case isForbidden(err):
		return diagnosis{"forbids this user what is needed", e.adviceACL(), false}
	case isReply(err):
		return diagnosis{}
	case errors.As(err, &file):
		return diagnosis{"cannot be asked", "the files are read again for each new connection", false}
	}
	if d, ok := e.diagnoseTLS(err); ok {
		return d
	}
	if isAway(err) {
		return diagnosis{"cannot be reached", e.adviceSilence(err, fresh), false}
	}
	return diagnosis{}
}

// isAway reports whether an error comes from the way to the server, or from its silence.
func isAway(err error) bool {
	var network net.Error
	if errors.As(err, &network) || script.NotExecuted(err) {
		return true
	}
	for _, one := range []error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, one) {
			return true
		}
	}
	return false
}

// isForbidden reports whether the server's access control refused a command. Within a script Redis 7.0 says so without a
// code of its own.
func isForbidden(err error) bool {
	return redis.IsPermissionError(err) || isReply(err) &&
		(strings.Contains(err.Error(), "can't run this command or subcommand") || strings.Contains(err.Error(), "ACL failure in script"))
}

func (e *endpoint) diagnoseLogin(err error) diagnosis {
	d := diagnosis{problem: "refuses the credentials", final: true}
	from := "--user and --password-file, or the URL as redis://user:password@host:6379/0"
	if e.failover != nil {
		from = "of the primary --user and --password-file, or username=… and password=… in the URL; of the Sentinels " +
			"--sentinel-user and --sentinel-password-file, or the URL before the first host"
	}
	if redis.HasErrorPrefix(err, "NOAUTH") {
		d.advice = "it wants a password: " + from
		return d
	}
	d.advice = "user and password come from " + from
	return d
}

// sidecarRules are what the user of a sidecar must be allowed, beside its keys.
const sidecarRules = "+eval +evalsha +hdel +hexists +hget +hgetall +hincrby +hlen +hmget +hscan +hset +llen +rpush +smembers " +
	"+time +zadd +zcard +zcount +zrange +zrangebyscore +zrem"

func (e *endpoint) adviceACL() string {
	all := strings.TrimSuffix(keys.Registry(e.prefix), "queues") + "*"
	return fmt.Sprintf("run, stats and queues need ~%s %s; for other commands see docs/reaper.md; ACL LOG on the server tells which command it was",
		all, sidecarRules)
}

func (e *endpoint) adviceDatabase() string {
	advice := "the ACL of this user must allow +select, or use database 0"
	if e.single != nil {
		advice += "; a Redis Cluster has database 0 only, and is named with ?cluster=true"
	}
	return advice
}

// diagnoseTLS is for what goes wrong between a connection and a command over TLS.
func (e *endpoint) diagnoseTLS(err error) (diagnosis, bool) {
	var (
		unknown   x509.UnknownAuthorityError
		otherName x509.HostnameError
		invalid   x509.CertificateInvalidError
		noTLS     tls.RecordHeaderError
		handshake *handshakeError
		op        *net.OpError
	)
	switch {
	case e.scheme != "rediss":
		return diagnosis{}, false
	case errors.As(err, &unknown):
		advice := "name the file of the authority that signed its certificate with --tls-ca"
		if e.tls.ca != "" {
			advice = fmt.Sprintf("the authorities in %s have not signed its certificate: --tls-ca must hold the one that has", e.tls.ca)
		}
		return diagnosis{"has a certificate of an authority that is not known here", advice, true}, true
	case errors.As(err, &otherName):
		return diagnosis{"has a certificate for another name", "connect by a name that is in it, or give one with --tls-server-name", true}, true
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return diagnosis{"has a certificate that is not valid now", "it must be renewed at the server; if it is not old, the clock here is wrong", false}, true
	case errors.As(err, &noTLS):
		return diagnosis{"does not speak TLS on this port", "begin the URL with redis://, or take the port for TLS", true}, true
	case errors.As(err, &op) && op.Op == "remote error":
		return diagnosis{"has ended the TLS handshake", e.adviceClientCertificate(), false}, true
	case errors.As(err, &handshake) && isTimeout(err):
		return diagnosis{"does not answer to TLS", advicePlain, false}, true
	case errors.As(err, &handshake):
		return diagnosis{"cannot be reached with TLS", "", false}, true
	}
	return diagnosis{}, false
}

func (e *endpoint) adviceClientCertificate() string {
	if e.tls.cert == "" {
		return "if it wants a certificate of its clients, give one with --tls-cert and --tls-key"
	}
	return fmt.Sprintf("it may not accept the certificate in %s: that must be signed by an authority of the server's, and not have expired", e.tls.cert)
}

// adviceSilence is for servers that end a connection, or say nothing, before the first command was answered: the two
// ways in which a port for TLS and one without answer to the other.
func (e *endpoint) adviceSilence(err error, fresh bool) string {
	var op *net.OpError
	dialing := errors.As(err, &op) && op.Op == "dial"
	cut := errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
	switch {
	case !fresh || dialing || !cut && !isTimeout(err):
		return ""
	case e.scheme == "redis":
		return "if it speaks TLS on this port, begin the URL with rediss://"
	case e.scheme == "rediss" && cut:
		return e.adviceClientCertificate()
	case e.scheme == "rediss":
		return advicePlain
	}
	return ""
}

const advicePlain = "if it does not speak TLS on this port, begin the URL with redis://, or take the port for TLS"

func isTimeout(err error) bool {
	var late net.Error
	return errors.As(err, &late) && late.Timeout()
}

// cause adds to the end of somebody's patience why no connection had been made until then.
func (e *endpoint) cause(err error) error {
	last := e.lastDial.Load()
	if e.connected.Load() || last == nil || !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, *last) {
		return err
	}
	return fmt.Errorf("%w; the last try: %w", err, *last)
}

// failed says what an error means, with an exit code of its own where it is about access to the server.
func (e *endpoint) failed(err error) error {
	err = e.cause(err)
	d := e.diagnose(err)
	if d.problem == "" {
		return err
	}
	err = fmt.Errorf("Redis at %s %s: %w", e.told, d.problem, err)
	if d.advice != "" {
		err = fmt.Errorf("%w (%s)", err, d.advice)
	}
	return &ExitError{Code: exitRedis, Err: err}
}
