//go:build unix

package cases

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/reaper"
	"github.com/leaseq/leaseq/reliable"
)

// idleConfig is what a process is told that has little to do.
type idleConfig struct {
	Server  serverAt
	Queue   string
	Marks   string
	Pool    int  // the size of the client's pool; 0: go-redis' default
	Sidecar bool // a Reaper of all queues; else a Consumer of 20 slots. Everything else is at its default
}

// idleUse is what such a process has used until now.
type idleUse struct {
	CPU   time.Duration   // in user and system mode
	Dials []time.Duration // when connections were tried, by all clients, since its start
}

// An idle process says what it has used whenever it gets SIGUSR1.
var _ = child("idle-process", func(config []byte) int {
	var c idleConfig
	err := json.Unmarshal(config, &c)
	if err == nil {
		err = c.run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
})

// silent keeps go-redis from writing a line for each dial that fails.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

func (c *idleConfig) run() error {
	redis.SetLogger(silent{})
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	begun := time.Now()
	var mu sync.Mutex
	dials := []time.Duration{}
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGUSR1)
	go func() {
		for range asked {
			var usage syscall.Rusage
			_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
			mu.Lock()
			line, _ := json.Marshal(idleUse{CPU: time.Duration(usage.Utime.Nano() + usage.Stime.Nano()), Dials: dials})
			mu.Unlock()
			fmt.Println(string(line))
		}
	}()
	dialer := net.Dialer{Timeout: 5 * time.Second}
	rdb := redis.NewClient(&redis.Options{
		Addr: c.Server.Addr, Username: c.Server.Username, Password: c.Server.Password, DB: c.Server.DB,
		PoolSize: c.Pool,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			mu.Lock()
			dials = append(dials, time.Since(begun))
			mu.Unlock()
			return dialer.DialContext(ctx, network, addr)
		},
	})
	defer rdb.Close()
	if c.Sidecar {
		r, err := reaper.New(rdb, nil)
		if err != nil {
			return err
		}
		fmt.Println("ready")
		return r.Run(ctx)
	}
	q, err := reliable.New(rdb, c.Queue, nil)
	if err != nil {
		return err
	}
	consumer, err := reliable.NewConsumer(q, reliable.HandlerFunc(func(_ context.Context, job *reliable.Job) error {
		putMark(c.Marks, mark{What: "start", ID: job.ID, Attempt: job.Attempt, Fence: job.Fence()})
		return nil
	}), &reliable.ConsumerOptions{Concurrency: 20})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	return consumer.Run(ctx)
}

// used asks an idle process.
func (p *process) used(t testing.TB) (use idleUse) {
	t.Helper()
	require.NoError(t, p.Process.Signal(syscall.SIGUSR1))
	select {
	case line := <-p.Lines:
		require.NoError(t, json.Unmarshal([]byte(line), &use), line)
	case <-time.After(time.Minute):
		t.Fatal("the process does not say what it has used")
	}
	return use
}
