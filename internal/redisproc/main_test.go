package redisproc

import (
	"context"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// parentRole is the environment variable that turns the test binary into a process that starts something, prints how
// to find it, and waits to be killed.
const parentRole = "REDISPROC_TEST_PARENT"

func TestMain(m *testing.M) {
	if role := os.Getenv(parentRole); role != "" {
		os.Exit(playParent(role))
	}
	goleak.VerifyTestMain(m)
}

func needRedis(t *testing.T) {
	t.Helper()
	if _, err := Find(); err != nil {
		t.Skip(err)
	}
}

// start starts a server that is stopped when the test ends.
func start(t *testing.T, o *Options) *Server {
	t.Helper()
	needRedis(t)
	s, err := Start(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() {
		if err := s.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// ask sends one command on a connection of its own.
func ask(s *Server, args ...string) (string, error) {
	password, _ := s.options.setting("requirepass")
	l, err := dial(context.Background(), s.Addr(), password)
	if err != nil {
		return "", err
	}
	defer l.close()
	return l.ask(args...)
}

func mustAsk(t *testing.T, s *Server, args ...string) string {
	t.Helper()
	answer, err := ask(s, args...)
	require.NoError(t, err, "%q", args)
	return answer
}

// requireDown waits until nobody listens on an address.
func requireDown(t *testing.T, addr string) {
	t.Helper()
	require.Eventually(t, func() bool {
		conn, err := net.DialTimeout("tcp", addr, time.Second)
		if err != nil {
			return true
		}
		_ = conn.Close()
		return false
	}, 10*time.Second, 10*time.Millisecond, "somebody still listens on %s", addr)
}

func playParent(role string) int {
	var err error
	switch role {
	case "server":
		var s *Server
		if s, err = Start(context.Background(), &Options{Dir: os.Getenv(parentRole + "_DIR")}); err == nil {
			fmt.Println(s.Addr())
		}
	default:
		err = playWatcher()
	}
	if err != nil {
		fmt.Println("error:", err)
		return 1
	}
	select {} // until killed
}
