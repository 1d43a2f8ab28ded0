//go:build unix

package cases

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/reliable"
)

const s20Lease = time.Minute

// s20Config tells a process to run consumers that note every start in a file of the process.
type s20Config struct {
	Server    serverAt
	Queue     string
	Consumers int
	Starts    string
}

var _ = child("s20-consumers", func(config []byte) int {
	var c s20Config
	if err := json.Unmarshal(config, &c); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	if err := c.run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
})

// run runs the consumers until SIGTERM.
func (c *s20Config) run() error {
	file, err := os.OpenFile(c.Starts, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	var all sync.WaitGroup
	failures := make([]error, c.Consumers)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	for i := range c.Consumers {
		all.Go(func() {
			rdb := c.Server.client(0)
			defer rdb.Close()
			failures[i] = c.consume(ctx, rdb, file)
		})
	}
	fmt.Println("ready")
	all.Wait()
	return errors.Join(failures...)
}

func (c *s20Config) consume(ctx context.Context, rdb *redis.Client, file *os.File) error {
	q, err := reliable.New(rdb, c.Queue, &reliable.QueueOptions{Lease: s20Lease})
	if err != nil {
		return err
	}
	start := func(_ context.Context, job *reliable.Job) error {
		_, err := file.WriteString(job.ID + "\n") // one write a line
		return err
	}
	consumer, err := reliable.NewConsumer(q, reliable.HandlerFunc(start), &reliable.ConsumerOptions{Concurrency: 8})
	if err != nil {
		return err
	}
	return errors.Join(consumer.Run(ctx), q.Close(context.Background()))
}

// Many consumers in four processes wait for the same instant at which all jobs become due, while other clients keep the
// server busy. No job is started twice, and none is ever in two places.
func TestS20_NoJobIsStartedTwiceByWorkersThatClaimAtTheSameInstant(t *testing.T) {
	t.Parallel()
	redistest.NeedServer(t)
	const processes = 4
	jobs, consumers := shape(3000, 100_000), shape(2, 8)
	l := newLane(t, &reliable.QueueOptions{Lease: s20Lease})
	server := sharedAt(t)
	var children []*process
	var files []string
	for i := range processes {
		files = append(files, filepath.Join(t.TempDir(), fmt.Sprintf("starts-%d", i)))
		p := startChild(t, "s20-consumers", s20Config{Server: server, Queue: l.name, Consumers: consumers, Starts: files[i]})
		require.Equal(t, "ready", <-p.Lines)
		children = append(children, p)
	}
	press(t, server, "case:"+l.name+":pressure")

	due := l.serverTime().Add(shape(time.Second, 10*time.Second)).Truncate(time.Millisecond)
	items := numberedItems("J", jobs)
	for i := range items {
		items[i].At = due
	}
	l.enqueue(items...)
	samples := 0
	require.Eventually(t, func() bool {
		samples++
		return l.sampleBoth(t, jobs)
	}, 5*time.Minute, shape(time.Millisecond, 10*time.Millisecond), "the queue does not become empty")
	for _, p := range children {
		require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	}
	for _, p := range children {
		require.Equal(t, 0, p.Wait(), "exit code after SIGTERM")
	}

	starts, busy := map[string]int{}, 0
	for _, file := range files {
		if n := countLines(t, file, starts); n > 0 {
			busy++
		}
	}
	assert.Len(t, starts, jobs, "distinct jobs started")
	for id, times := range starts {
		if times != 1 {
			t.Errorf("%s was started %d times", id, times)
		}
	}
	assert.Equal(t, processes, busy, "processes that started anything")
	counters := l.stats().Counters
	assert.EqualValues(t, jobs, counters["acked"])
	assert.EqualValues(t, jobs, counters["claimed"])
	assert.Greater(t, samples, 10)
	t.Logf("%d jobs, %d samples", jobs, samples)
}

// sampleBoth looks at due and processing in one MULTI, and says whether both are empty.
func (l *lane) sampleBoth(t *testing.T, most int) (empty bool) {
	var due, processing *redis.IntCmd
	var both *redis.StringSliceCmd
	_, err := l.rdb.TxPipelined(t.Context(), func(pipe redis.Pipeliner) error {
		due = pipe.ZCard(t.Context(), l.keys.Key("due"))
		processing = pipe.ZCard(t.Context(), l.keys.Key("processing"))
		both = pipe.ZInter(t.Context(), &redis.ZStore{Keys: []string{l.keys.Key("due"), l.keys.Key("processing")}})
		return nil
	})
	assert.NoError(t, err)
	assert.LessOrEqual(t, due.Val()+processing.Val(), int64(most), "due and processing together")
	assert.Empty(t, both.Val(), "in due and in processing")
	return err == nil && due.Val()+processing.Val() == 0
}

// press keeps the server busy, as a benchmark does, with writes and reads beside the queue, until the test ends.
func press(t testing.TB, server serverAt, key string) {
	t.Helper()
	rdb := server.client(1)
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			for ctx.Err() == nil {
				_, err := rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
					for i := range 16 {
						pipe.HSet(ctx, key, strconv.Itoa(i), "some bytes of value")
						pipe.HGetAll(ctx, key)
					}
					return nil
				})
				if err != nil && ctx.Err() == nil {
					t.Errorf("pressure: %v", err)
					return
				}
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		all.Wait()
		require.NoError(t, rdb.Del(context.Background(), key).Err())
		require.NoError(t, rdb.Close())
	})
}

// countLines adds a file's lines to what was counted so far.
func countLines(t testing.TB, path string, counts map[string]int) (lines int) {
	t.Helper()
	file, err := os.Open(path)
	require.NoError(t, err)
	defer file.Close()
	scanner := bufio.NewScanner(file)
	for scanner.Scan() {
		counts[scanner.Text()]++
		lines++
	}
	require.NoError(t, scanner.Err())
	return lines
}
