package cases

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/redistest"
)

// A seen is one command that a server reported to MONITOR.
type seen struct {
	command string // its name, in upper case
	script  bool   // a script ran it
	line    string
}

// monitor gives every command of the shared server that touches the queue to look, until that returns false. It calls
// began when the server has begun to report, and waits at most a minute for a report.
func monitor(t testing.TB, queue string, began func(), look func(seen) bool) {
	t.Helper()
	o := redistest.Options(t)
	conn, err := net.Dial("tcp", o.Addr)
	require.NoError(t, err)
	defer conn.Close()
	lines := bufio.NewReader(conn)
	say := func(command string) {
		_, err := fmt.Fprintf(conn, "%s\r\n", command)
		require.NoError(t, err)
		answer, err := lines.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, "+OK\r\n", answer, command)
	}
	if o.Password != "" {
		say(strings.TrimSpace("AUTH " + o.Username + " " + o.Password))
	}
	say("MONITOR")
	began()
	for {
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
		line, err := lines.ReadString('\n')
		require.NoError(t, err)
		if !strings.Contains(line, "{"+queue+"}") {
			continue
		}
		// +1700000000.123456 [0 127.0.0.1:50000] "ZADD" "key" …; of a script's own calls: [0 lua]
		head, rest, ok := strings.Cut(line, "] \"")
		name, _, ok2 := strings.Cut(rest, "\"")
		require.True(t, ok && ok2, "a line of MONITOR: %s", line)
		if !look(seen{command: strings.ToUpper(name), script: strings.HasSuffix(head, " lua"), line: line}) {
			return
		}
	}
}
