package reliable

import (
	"context"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var eventNames = []eventName{eventStart, eventDone, eventRetry, eventRelease, eventDead, eventCancelled, eventLost, eventOverdue, eventError}

func TestEveryHookIsCalledForItsOwnEventOnly(t *testing.T) {
	t.Parallel()
	var got []string
	hooks := &Hooks{}
	fields := reflect.ValueOf(hooks).Elem()
	require.Equal(t, len(eventNames), fields.NumField(), "each hook has its event")
	for i := range fields.NumField() {
		name := fields.Type().Field(i).Name
		fields.Field(i).Set(reflect.ValueOf(func(_ context.Context, e Event) { got = append(got, name+" "+e.ID) }))
	}
	for i, name := range eventNames {
		require.NoError(t, hooks.fire(t.Context(), name, Event{ID: "7"}))
		require.Len(t, got, i+1)
		require.Equal(t, "on"+string(name)+" 7", strings.ToLower(got[i]))
	}
	require.NoError(t, hooks.fire(t.Context(), "unheard of", Event{}))
	require.Len(t, got, len(eventNames))
}

func TestMissingHooksDoNothing(t *testing.T) {
	t.Parallel()
	var none *Hooks
	for _, name := range eventNames {
		require.NoError(t, none.fire(t.Context(), name, Event{}))
		require.NoError(t, (&Hooks{}).fire(t.Context(), name, Event{}))
	}
}

func TestHooksGetTheContextAndTheWholeEvent(t *testing.T) {
	t.Parallel()
	type key struct{}
	ctx := context.WithValue(t.Context(), key{}, 1)
	want := fullEvent()
	called := false
	hooks := &Hooks{OnRetry: func(ctx context.Context, e Event) {
		called = true
		require.Equal(t, 1, ctx.Value(key{}))
		require.Equal(t, want, e)
	}}
	require.NoError(t, hooks.fire(ctx, eventRetry, want))
	require.True(t, called)
}

func TestAPanicOfAHookIsReturned(t *testing.T) {
	t.Parallel()
	hooks := &Hooks{OnDone: func(context.Context, Event) { panic("hook is broken") }}
	err := hooks.fire(t.Context(), eventDone, Event{})
	var failed *panicError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, "panic: hook is broken", failed.Reason)
	require.Contains(t, failed.Stack, "hooks_test.go")
}
