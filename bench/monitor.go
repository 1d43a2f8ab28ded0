package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"time"
)

// countCommands counts for a time what clients send to a server, not what scripts call there. It listens with MONITOR,
// which is dear: only for servers with little to do.
func countCommands(ctx context.Context, addr string, d time.Duration) (int, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if _, err := conn.Write([]byte("MONITOR\r\n")); err != nil {
		return 0, err
	}
	lines := bufio.NewReader(conn)
	if line, err := lines.ReadString('\n'); err != nil || !strings.HasPrefix(line, "+OK") {
		return 0, fmt.Errorf("MONITOR: answer %q, error %w", line, err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(d)); err != nil {
		return 0, err
	}
	for n := 0; ; {
		line, err := lines.ReadString('\n')
		if timeout, ok := err.(net.Error); ok && timeout.Timeout() {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		if byClient(line) {
			n++
		}
	}
}

// byClient tells a line of MONITOR about a client's command, as in
//
//	+1700000000.123456 [0 127.0.0.1:50000] "get" "key"
//
// from one about a script's, which has [0 lua].
func byClient(line string) bool {
	_, rest, _ := strings.Cut(line, " [")
	source, _, found := strings.Cut(rest, "]")
	return found && !strings.HasSuffix(source, " lua")
}
