package main

import (
	"context"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// An endpoint is a server, or several, that a URL and the flags beside it name.
type endpoint struct {
	told     string   // how it is called in logs and errors: without user, password and parameters
	warnings []string // what is not good, but no reason to refuse

	scheme   string // redis, rediss or unix
	database int
	prefix   string

	single   *redis.Options // one of the three
	failover *redis.FailoverOptions
	cluster  *redis.ClusterOptions

	tls               tlsFiles
	passwordFile      *passwordFile // nil: the password is in the options
	sentinelsPassword *passwordFile // the same of the Sentinels

	// connected is true once a connection was made on which commands can be sent: so with TLS, credentials and database.
	connected atomic.Bool
	lastDial  atomic.Pointer[error] // why the last connection that could not be made was not
}

// open makes a client, without contacting anybody. A quick one is for a command that a person waits for: it tries once,
// and keeps to the deadline of a context. Otherwise the client's own defaults and the URL's parameters hold.
func (e *endpoint) open(quick bool) redis.UniversalClient {
	// The client library would ask for hints that the server is about to move, and tell it its own name. Both need further
	// permissions of the user, for nothing: whoever uses these clients goes on after every broken connection.
	quiet := &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	switch {
	case e.failover != nil:
		o := *e.failover
		o.Dialer, o.TLSConfig = e.dialer(o.DialTimeout), nil
		o.CredentialsProviderContext, o.OnConnect = e.provider(o.Username), e.greet
		o.DisableIdentity = true
		if quick {
			o.MaxRetries, o.DialerRetries, o.ContextTimeoutEnabled = -1, 1, true
		}
		return redis.NewFailoverClient(&o)
	case e.cluster != nil:
		o := *e.cluster
		o.Dialer, o.TLSConfig, o.MaintNotificationsConfig = e.dialer(o.DialTimeout), nil, quiet
		o.CredentialsProviderContext, o.OnConnect = e.provider(o.Username), e.greet
		o.DisableIdentity = true
		if quick {
			o.DialerRetries, o.ContextTimeoutEnabled = 1, true
		}
		return redis.NewClusterClient(&o)
	}
	o := *e.single
	o.Dialer, o.TLSConfig, o.MaintNotificationsConfig = e.dialer(o.DialTimeout), nil, quiet
	o.CredentialsProviderContext, o.OnConnect = e.provider(o.Username), e.greet
	o.DisableIdentity = true
	if quick {
		o.MaxRetries, o.DialerRetries, o.ContextTimeoutEnabled = -1, 1, true
	}
	return redis.NewClient(&o)
}

// login returns where the options keep user and password for the servers that have the queues.
func (e *endpoint) login() (user, password *string) {
	switch {
	case e.failover != nil:
		return &e.failover.Username, &e.failover.Password
	case e.cluster != nil:
		return &e.cluster.Username, &e.cluster.Password
	}
	return &e.single.Username, &e.single.Password
}

// provider gives each new connection the password that is in the file now; nil where there is no file.
func (e *endpoint) provider(user string) func(context.Context) (string, string, error) {
	if e.passwordFile == nil {
		return nil
	}
	return func(context.Context) (string, string, error) {
		password, err := e.passwordFile.read()
		return user, password, err
	}
}

// greet is called on each new connection.
func (e *endpoint) greet(ctx context.Context, conn *redis.Conn) error {
	if e.failover == nil || isPrimary(conn) {
		e.connected.Store(true)
		return nil
	}
	// The client library asks for the credentials of servers anew for each connection, but not for those of Sentinels.
	if e.sentinelsPassword == nil {
		return nil
	}
	password, err := e.sentinelsPassword.read()
	if err != nil {
		return err
	}
	if user := e.failover.SentinelUsername; user != "" {
		return conn.AuthACL(ctx, user, password).Err()
	}
	return conn.Auth(ctx, password).Err()
}

// isPrimary tells a connection to the primary from one to a Sentinel: the client library calls them back alike, and
// names the first kind as below, since its address changes, and the second by the address.
func isPrimary(conn *redis.Conn) bool {
	return strings.HasPrefix(conn.String(), "Redis<FailoverClient ")
}
