package redisproc

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// askTimeout bounds one question to a server, dialling included.
const askTimeout = 2 * time.Second

// errReply is an error reply of a server, without the leading minus.
type errReply string

func (e errReply) Error() string { return string(e) }

// A line is a connection that asks one thing after another.
type line struct {
	conn net.Conn
	r    *bufio.Reader
}

func dial(ctx context.Context, addr, password string) (*line, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		conn.Close()
		return nil, err
	}
	l := &line{conn: conn, r: bufio.NewReader(conn)}
	if password != "" {
		if _, err := l.ask("AUTH", password); err != nil {
			conn.Close()
			return nil, err
		}
	}
	return l, nil
}

func (l *line) close() { _ = l.conn.Close() }

// ask sends one command and returns its reply, which must be a simple or a bulk string.
func (l *line) ask(args ...string) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, arg := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(arg), arg)
	}
	if _, err := io.WriteString(l.conn, b.String()); err != nil {
		return "", err
	}
	head, err := l.r.ReadString('\n')
	if err != nil {
		return "", err
	}
	head = strings.TrimRight(head, "\r\n")
	if head == "" {
		return "", errors.New("an empty reply")
	}
	switch head[0] {
	case '+':
		return head[1:], nil
	case '-':
		return "", errReply(head[1:])
	case '$':
		n, err := strconv.Atoi(head[1:])
		if err != nil || n < 0 || n > 1<<20 {
			return "", fmt.Errorf("a reply that starts %q", head)
		}
		body := make([]byte, n+2)
		if _, err := io.ReadFull(l.r, body); err != nil {
			return "", err
		}
		return string(body[:n]), nil
	}
	return "", fmt.Errorf("a reply that starts %q", head)
}

// pid returns the process ID that the server tells. A server that is still loading tells it too.
func (l *line) pid() (int, error) {
	info, err := l.ask("INFO", "server")
	if err != nil {
		return 0, err
	}
	for row := range strings.SplitSeq(info, "\r\n") {
		if value, found := strings.CutPrefix(row, "process_id:"); found {
			return strconv.Atoi(value)
		}
	}
	return 0, errors.New("INFO names no process_id")
}
