package reliable

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"runtime"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/redistest"
)

// Variables of the process whose hook calls runtime.Goexit.
const (
	exitingHook  = "LEASEQ_EXITING_HOOK" // its field in Hooks
	exitingAddr  = "LEASEQ_EXITING_ADDR"
	exitingQueue = "LEASEQ_EXITING_QUEUE"
)

// consumeWithExitingHook works on one job, with a hook that calls runtime.Goexit. It would return 0 if the process went
// on.
func consumeWithExitingHook() int {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	hooks := &Hooks{}
	reflect.ValueOf(hooks).Elem().FieldByName(os.Getenv(exitingHook)).
		Set(reflect.ValueOf(func(context.Context, Event) { runtime.Goexit() }))
	name := os.Getenv(exitingQueue)
	q, err := New(redis.NewClient(&redis.Options{Addr: os.Getenv(exitingAddr)}), name, &QueueOptions{MaxRetries: new(0)})
	if err == nil {
		_, err = q.Enqueue(ctx, Item{ID: "1", Kind: os.Getenv(exitingHook)})
	}
	var c *Consumer
	if err == nil {
		c, err = NewConsumer(q, HandlerFunc(handleForHook), &ConsumerOptions{Hooks: hooks, JobTimeout: 100 * time.Millisecond})
	}
	if err == nil {
		err = c.Run(ctx)
	}
	fmt.Fprintln(os.Stderr, "Run has returned:", err)
	return 0
}

// handleForHook ends as the kind asks for, which is the name of a hook.
func handleForHook(ctx context.Context, job *Job) error {
	switch job.Kind {
	case "OnDone":
		return nil
	case "OnRelease":
		return ReleaseAfter(time.Hour, nil)
	case "OnRetry":
		return RetryAfter(time.Hour, nil)
	case "OnDead":
		return Discard(nil)
	case "OnOverdue":
		<-ctx.Done()
		select {}
	}
	return errors.New("no such kind")
}

func TestAHookThatCallsGoexitEndsTheProcessAndIsNamed(t *testing.T) {
	t.Parallel()
	redistest.NeedServer(t)
	for hook, event := range map[string]eventName{
		"OnStart": eventStart, "OnDone": eventDone, "OnRelease": eventRelease, "OnDead": eventDead, "OnOverdue": eventOverdue,
	} {
		t.Run(hook, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Second)
			defer cancel()
			cmd := exec.CommandContext(ctx, os.Args[0])
			cmd.Env = append(os.Environ(), ProgramVariable+"=exiting-hook", exitingHook+"="+hook, exitingAddr+"="+redistest.Addr(t), exitingQueue+"="+redistest.Queue(t))
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			err := cmd.Run()
			require.Error(t, err, out.String())
			require.Equal(t, 2, cmd.ProcessState.ExitCode(), out.String())
			require.Contains(t, out.String(), "the hook for "+string(event)+" has called runtime.Goexit")
			require.NotContains(t, out.String(), "Run has returned")
		})
	}
}

func TestAGoexitOfAHookIsAPanicOfItsCaller(t *testing.T) {
	t.Parallel()
	for _, name := range eventNames {
		hooks := &Hooks{}
		exits := func(context.Context, Event) { runtime.Goexit() }
		fields := reflect.ValueOf(hooks).Elem()
		for i := range fields.NumField() {
			fields.Field(i).Set(reflect.ValueOf(exits))
		}
		caught := make(chan any, 1)
		go func() {
			defer func() { caught <- recover() }()
			_ = hooks.fire(context.Background(), name, Event{})
		}()
		require.Contains(t, <-caught, "the hook for "+string(name)+" has called runtime.Goexit")
	}
}

func TestWithPanicnilAPanicOfNilInAHookIsAPanic(t *testing.T) {
	t.Setenv("GODEBUG", "panicnil=1")
	err := (&Hooks{OnDone: func(context.Context, Event) { panic(nil) }}).fire(t.Context(), eventDone, Event{})
	require.EqualError(t, err, "panic: nil")
}
