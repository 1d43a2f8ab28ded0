package main

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/reliable"
)

// FuzzURL: no URL makes a panic, and a password that stands before the host is shown by no error and no name of a server,
// however little the rest is a URL.
func FuzzURL(f *testing.F) {
	f.Add("redis://", "user", "127.0.0.1:6379/0")
	f.Add("rediss://", "", "h:1?cluster=true&addr=n2:7001")
	f.Add("redis://", "u", "s1:26379/1?master_name=main&addr=s2:1&username=app")
	f.Add("unix://", "u", "/run/redis.sock?db=2")
	f.Add("redis://", "u/x", "h:6379?db=3")
	f.Add("redis://h?db=", "u", "h")
	f.Add("redis://h?read_timeout=", "", "&pool_size=9")
	f.Add("redis://h?addr=", "u", "h2:1&cluster=true")
	f.Add("redis://[::1]:", "%zz", "h#x")
	f.Add("redis://", "h?x", "h")
	f.Add("redis://s1?master_name=", "", "h")
	f.Add("redis://n1?cluster=true&addr=", "n2", "h")
	f.Add("unix:///", "x", "run")
	f.Add("", "", "")
	const secret = "hunter2hunter2"
	f.Fuzz(func(t *testing.T, scheme, user, rest string) {
		if strings.Contains(scheme+user+rest, "hunter") {
			return
		}
		e, err := parseURL(scheme + user + ":" + secret + "@" + rest)
		if err != nil {
			require.NotContains(t, err.Error(), secret)
			require.NotContains(t, redact(err.Error()), secret)
			return
		}
		require.NotEmpty(t, e.told)
		require.NotContains(t, e.told, secret)
		for _, quick := range []bool{true, false} {
			require.NoError(t, e.open(quick).Close())
		}
	})
}

// FuzzArguments: a command line, one argument a line, is taken or refused as a wrong usage, and never makes a panic.
func FuzzArguments(f *testing.F) {
	f.Add("enqueue\norders\n--kind\nk\n--delay\n30m\n--header\na=b\npayload", "")
	f.Add("enqueue\norders\n--jsonl\n-\n--from-line\n7\n--timeout\n1h", "redis://h:1/2")
	f.Add("enqueue\norders\n--kind\nk\n--at\n2026-01-31T08:00:00Z\n--max-retries\n-1\n-", "")
	f.Add("enqueue\norders\n--kind\nk\n--delay=9999999h\n--max-expiries=99999999999999999999\n", "unix:///x")
	f.Add("run\n--log-level\ndebug\norders\n--health-addr\n:0", "")
	f.Add("stats\n--json\n--timeout\n-1s\norders", "redis://:p%40ss@h")
	f.Add("queue\ndelete\norders\n--dry-run\n--yes\n--batch\n0", "")
	f.Add("--\n-x\n\n--=\n--redis=\n--prefix=\x00", "nonsense")
	f.Fuzz(func(t *testing.T, line, server string) {
		args := strings.Split(line, "\n")
		for _, word := range []string{"__complete", "/dev", "/proc", "/sys", "demo"} {
			if strings.Contains(line, word) { // what would contact a server, or read without end
				return
			}
		}
		app := NewApp(&AppOptions{Out: io.Discard, Err: io.Discard, LookupEnv: func(name string) (string, bool) {
			return server, name == "LEASEQ_REDIS"
		}})
		defer func() { require.NoError(t, app.Close()) }()
		err := app.ParseFlags(args)
		var exit *ExitError
		if err != nil {
			require.True(t, errors.As(err, &exit), "%v", err)
			require.NotZero(t, exit.Code)
			require.NotEmpty(t, err.Error())
		}
	})
}

// FuzzLines: lines are numbered and cut as they are by who splits the whole text, whatever it holds, and a long one is
// refused alone.
func FuzzLines(f *testing.F) {
	f.Add([]byte("one\r\n\n  \t\r\nfour\nfive \rx\n\nseven"), int64(1), uint16(5))
	f.Add([]byte("\n\n\n"), int64(3), uint16(1))
	f.Add([]byte("\xff\xfe\x00\n\xef\xbb\xbf{}\r"), int64(-4), uint16(300))
	f.Add([]byte(strings.Repeat("x", 70_000)+"\n{}"), int64(1), uint16(60_000))
	f.Fuzz(func(t *testing.T, text []byte, from int64, most uint16) {
		want := map[int64]string{}
		lines := bytes.Split(text, []byte("\n"))
		for i, line := range lines {
			want[int64(i+1)] = string(bytes.TrimSuffix(line, []byte("\r")))
		}
		source := newLineSource(bytes.NewReader(text), true, from, func(text []byte, _ int64) (reliable.Item, error) {
			return reliable.Item{Payload: bytes.Clone(text)}, nil
		})
		source.most = max(int(most), 1)
		last := int64(0)
		for {
			b := source.next()
			for _, l := range b.lines {
				require.Greater(t, l.number, last)
				require.GreaterOrEqual(t, l.number, from)
				last = l.number
				long := len(want[l.number]) > source.most
				if l.err != nil {
					require.GreaterOrEqual(t, len(want[l.number]), source.most, "%v", l.err)
					continue
				}
				require.False(t, long)
				require.Equal(t, want[l.number], string(l.item.Payload))
			}
			if b.end != nil {
				require.ErrorIs(t, b.end, io.EOF)
				return
			}
		}
	})
}
