package record

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/reliable"
)

func TestAWorkerOfAChaosRunIsRecordedAsTheEnvironmentSays(t *testing.T) {
	file := filepath.Join(t.TempDir(), "w.jsonl")
	for name, value := range map[string]string{
		EnvHistory: file, EnvQueue: "orders", EnvProcess: "worker 3, process 2", EnvSlots: "8", EnvLease: "1500ms",
	} {
		t.Setenv(name, value)
	}
	r, err := FromEnv()
	require.NoError(t, err)
	require.NoError(t, r.Close())
	var first Event
	_, err = File(file).Each(func(e *Event) error {
		if e.Kind == Opened {
			first = *e
		}
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, Event{
		Kind: Opened, At: first.At, Wall: first.Wall, Version: Version, Process: "worker 3, process 2", Queue: "orders", Slots: 8, Lease: 1500,
	}, first)
}

func TestAnIncompleteEnvironmentIsNamed(t *testing.T) {
	for name, value := range map[string]string{
		EnvHistory: filepath.Join(t.TempDir(), "w.jsonl"), EnvQueue: "", EnvProcess: "w", EnvSlots: "many", EnvLease: "2",
	} {
		t.Setenv(name, value)
	}
	_, err := FromEnv()
	for _, name := range []string{EnvQueue, EnvSlots, EnvLease} {
		require.ErrorContains(t, err, name)
	}
}

// Outside of a chaos run a program keeps its recorder, which is nil.
func TestANilRecorderDoesNothing(t *testing.T) {
	t.Setenv(EnvHistory, "")
	r, err := FromEnv()
	require.NoError(t, err)
	require.Nil(t, r)
	hooks := &reliable.Hooks{}
	require.Same(t, hooks, r.Hooks(hooks))
	ran := false
	h := r.Middleware()(reliable.HandlerFunc(func(context.Context, *reliable.Job) error { ran = true; return nil }))
	require.NoError(t, h.Handle(t.Context(), &reliable.Job{}))
	require.True(t, ran)
	r.Write(&Event{})
	r.ServerTime(time.Now(), time.Now(), time.Now())
	r.Swept(Sweep{})
	r.Begin(OpCancel, "a").Done(nil)
	require.NoError(t, r.Err())
	require.NoError(t, r.Close())
}
