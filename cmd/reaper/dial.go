package main

import (
	"context"
	"crypto/tls"
	"net"
	"time"
)

// A handshakeError says that a connection was made, but no TLS over it.
type handshakeError struct{ err error }

func (e *handshakeError) Error() string { return "no TLS over the connection: " + e.err.Error() }

// Unwrap returns the cause.
func (e *handshakeError) Unwrap() error { return e.err }

// Timeout reports whether there was no answer in time.
func (e *handshakeError) Timeout() bool { return isTimeout(e.err) }

// Temporary is what net.Error wants; nobody asks.
func (e *handshakeError) Temporary() bool { return false }

// defaultDialTimeout is the client library's.
const defaultDialTimeout = 5 * time.Second

// keepAlive is as the client library sets it: a connection that died without a word is noticed within 45 s.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 5 * time.Second, Count: 3}

// dialer connects, with TLS where the URL says so. It keeps the last error, which the client library does not tell where
// somebody's patience ends before its own.
func (e *endpoint) dialer(timeout time.Duration) func(ctx context.Context, network, addr string) (net.Conn, error) {
	if timeout == 0 {
		timeout = defaultDialTimeout
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if timeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, timeout)
			defer cancel()
		}
		conn, err := e.dial(ctx, network, addr)
		if err != nil {
			e.lastDial.Store(&err)
			return nil, err
		}
		return conn, nil
	}
}

func (e *endpoint) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	plain := &net.Dialer{KeepAliveConfig: keepAlive}
	if e.scheme != "rediss" {
		return plain.DialContext(ctx, network, addr)
	}
	// The files are read again for each new connection, so that certificates can be renewed under a process that runs.
	config, err := e.tls.config()
	if err != nil {
		return nil, err
	}
	if config.ServerName == "" {
		if config.ServerName, _, err = net.SplitHostPort(addr); err != nil {
			return nil, err
		}
	}
	conn, err := plain.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close() // nothing was sent on it
		return nil, &net.OpError{Op: "dial", Net: network, Addr: conn.RemoteAddr(), Err: &handshakeError{err}}
	}
	return secure, nil
}
