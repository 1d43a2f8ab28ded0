package main

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// open starts a server and opens a system on it.
func open(t *testing.T, system System, o Options) *stand {
	t.Helper()
	ctx := t.Context()
	server, err := startServer(ctx, false)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.stop(context.Background())) })
	require.NoError(t, system.Open(ctx, server.Addr(), o))
	s := &stand{System: system, options: o, server: server, bench: &bench{plan: tinyPlan(), results: newResults(), log: t.Output()}}
	t.Cleanup(func() { require.NoError(t, s.close(context.Background())) })
	return s
}

// Every system hands over each job once, byte for byte, and no delayed one more than its rounding too early.
func TestEverySystemWorksOffWhatIsEnqueued(t *testing.T) {
	for _, makeSystem := range known {
		t.Run(makeSystem().Name(), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			s := open(t, makeSystem(), Options{Fast: true})
			var jobs []Job
			for i := range 30 {
				jobs = append(jobs, Job{Payload: fmt.Appendf(nil, "%d\x00\xff\r\n", i)})
			}
			require.NoError(t, s.Enqueue(ctx, jobs))
			late := Job{ID: "late", Payload: []byte("late"), Delay: 1500 * time.Millisecond}
			due := time.Now().Add(late.Delay)
			require.NoError(t, s.Enqueue(ctx, []Job{late}))

			var mu sync.Mutex
			got := map[string]int{}
			var startedLate time.Time
			left := newCountdown(len(jobs) + 1)
			w := begin(ctx, s, 4, func(_ context.Context, payload []byte) {
				mu.Lock()
				defer mu.Unlock()
				got[string(payload)]++
				if string(payload) == "late" {
					startedLate = time.Now()
				}
				left.count()
			})
			require.NoError(t, w.wait(ctx, left.all))
			require.NoError(t, w.stop())
			require.Len(t, got, len(jobs)+1)
			for _, job := range jobs {
				require.Equal(t, 1, got[string(job.Payload)])
			}
			require.Greater(t, startedLate.Sub(due), -time.Second)
		})
	}
}

// Leasers tell who is held, and until when.
func TestLeasesAreThoseOfJobsThatAreHeld(t *testing.T) {
	for _, makeSystem := range known {
		if _, ok := makeSystem().(Leaser); !ok {
			continue
		}
		t.Run(makeSystem().Name(), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			s := open(t, makeSystem(), Options{Fast: true})
			ids, err := enqueueNamed(ctx, s, 2)
			require.NoError(t, err)
			leases, err := s.System.(Leaser).Leases(ctx, ids)
			require.NoError(t, err)
			require.Empty(t, leases)
			both, end := newCountdown(2), make(chan struct{})
			w := begin(ctx, s, 2, func(context.Context, []byte) { both.count(); <-end })
			require.NoError(t, w.wait(ctx, both.all))
			leases, err = s.System.(Leaser).Leases(ctx, ids)
			require.NoError(t, err)
			require.Len(t, leases, 2)
			for _, expiry := range leases {
				require.WithinDuration(t, time.Now().Add(15*time.Second), expiry, 16*time.Second)
			}
			close(end)
			require.NoError(t, w.stop())
		})
	}
}

// The pop takes what is due, lowest due time first, and leaves nothing of it.
func TestThePopTakesJobsThatAreDueAndForgetsThem(t *testing.T) {
	ctx := t.Context()
	system := new(popSystem)
	s := open(t, system, Options{})
	require.NoError(t, system.Enqueue(ctx, []Job{{ID: "b", Payload: []byte("second"), Delay: 30 * time.Millisecond}}))
	require.NoError(t, system.Enqueue(ctx, []Job{{ID: "a", Payload: []byte("first")}, {ID: "c", Payload: []byte("third"), Delay: time.Hour}}))
	time.Sleep(50 * time.Millisecond)
	for _, want := range []string{"first", "second"} {
		payload, found, err := system.take(ctx)
		require.NoError(t, err)
		require.True(t, found)
		require.Equal(t, want, string(payload))
	}
	_, found, err := system.take(ctx)
	require.NoError(t, err)
	require.False(t, found, "the third is not due")
	left, err := s.server.admin.HGetAll(ctx, popKeys[1]).Result()
	require.NoError(t, err)
	require.Equal(t, map[string]string{"c": "third"}, left)
	require.Equal(t, int64(1), s.server.admin.ZCard(ctx, popKeys[0]).Val())
}

func TestOnlyCommandsOfClientsAreCounted(t *testing.T) {
	require.True(t, byClient("+1700000000.123456 [0 127.0.0.1:50000] \"get\" \"[0 lua]\"\r\n"))
	require.False(t, byClient("+1700000000.123456 [0 lua] \"get\" \"key\"\r\n"))

	s := open(t, new(popSystem), Options{})
	counted := make(chan int, 1)
	go func() {
		n, err := countCommands(t.Context(), s.server.Addr(), time.Second)
		if err != nil {
			n = -1
		}
		counted <- n
	}()
	time.Sleep(300 * time.Millisecond)
	require.NoError(t, popPut.Load(t.Context(), s.server.admin).Err())
	require.NoError(t, popPut.EvalSha(t.Context(), s.server.admin, popKeys, "a", "1", "x").Err())
	require.Equal(t, 2, <-counted)
}

// A system whose Work ends by itself fails the measurement, and does not hang it.
func TestAWorkThatEndsByItselfIsAnError(t *testing.T) {
	s := open(t, endingSystem{new(popSystem)}, Options{})
	err := process(t.Context(), s, load{1, 1}, "process_1")
	require.ErrorIs(t, err, errEnded)
	_, err = beginIdle(t.Context(), s, nil)
	require.ErrorIs(t, err, errEnded)
}

type endingSystem struct{ *popSystem }

func (endingSystem) Work(context.Context, int, Handler) error { return nil }
