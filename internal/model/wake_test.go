package model

import "testing"

// With a free slot and a due job something always leads to a claim, and it is never the fallback.
func TestWakingUpIsSound(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name         string
		small, large WakeOptions
	}{
		{"two consumers", WakeOptions{Consumers: 2, Slots: 1, Enqueues: 3, Nacks: 1}, WakeOptions{Consumers: 2, Slots: 2, Enqueues: 4, Nacks: 2}},
		{"failures", WakeOptions{Consumers: 2, Slots: 1, Enqueues: 2, Nacks: 1, Failures: 1}, WakeOptions{Consumers: 2, Slots: 2, Enqueues: 3, Nacks: 1, Failures: 2}},
		{"jobs that are due later", WakeOptions{Consumers: 2, Slots: 1, Enqueues: 1, Later: 1, Nacks: 1}, WakeOptions{Consumers: 2, Slots: 2, Enqueues: 2, Later: 3, Nacks: 1}},
		{"stops and deaths", WakeOptions{Consumers: 2, Slots: 1, Enqueues: 2, Stops: 1, Deaths: 1}, WakeOptions{Consumers: 3, Slots: 1, Enqueues: 2, Stops: 1, Deaths: 1}},
		{"waiting without a free slot, as a queue does that shares its slots", WakeOptions{Consumers: 2, Slots: 1, Enqueues: 3, Nacks: 1, Dropped: FreeArms}, WakeOptions{Consumers: 2, Slots: 2, Enqueues: 4, Nacks: 2, Dropped: FreeArms}},
		{"the same with all together", WakeOptions{Consumers: 2, Slots: 1, Later: 1, Failures: 1, Stops: 1, Deaths: 1, Dropped: FreeArms}, WakeOptions{Consumers: 2, Slots: 2, Enqueues: 2, Later: 1, Failures: 1, Stops: 1, Deaths: 1, Nacks: 1, Dropped: FreeArms}},
		{"three consumers", WakeOptions{Consumers: 3, Slots: 1, Enqueues: 2}, WakeOptions{Consumers: 3, Slots: 1, Enqueues: 3, Nacks: 1, Failures: 1}},
		{"all together", WakeOptions{Consumers: 2, Slots: 1, Later: 1, Failures: 1, Stops: 1, Deaths: 1}, WakeOptions{Consumers: 2, Slots: 2, Enqueues: 2, Later: 1, Failures: 1, Stops: 1, Deaths: 1, Nacks: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if !large() {
				t.Parallel()
			}
			o := c.small
			if large() {
				o = c.large
			}
			searchSound(t, NewWake(o), 60_000_000)
		})
	}
}

func TestNaiveWakeUpsAreCaught(t *testing.T) {
	t.Parallel()
	const forgotten = "nothing but the fallback"
	for _, c := range []struct {
		name   string
		o      WakeOptions
		broken string
		steps  int
	}{
		{"a claim does not pass it on", WakeOptions{Consumers: 2, Slots: 1, Enqueues: 3, Dropped: ClaimPassesOn}, forgotten, 11},
		{"a process without a free slot keeps it", WakeOptions{Consumers: 2, Slots: 1, Enqueues: 2, Later: 1, Dropped: FullPassesOn}, forgotten, 13},
		{"a wake-up is waited for without a free slot, and kept", WakeOptions{Consumers: 2, Slots: 1, Enqueues: 3, Dropped: FreeArms | FullPassesOn}, forgotten, 9},
		{"a timer owes nothing", WakeOptions{Consumers: 2, Slots: 1, Enqueues: 1, Later: 1, Dropped: TimerOwes}, forgotten, 13},
		{"who stops keeps the next due time to itself", WakeOptions{Consumers: 2, Slots: 1, Later: 1, Stops: 1, Dropped: StopTellsTime}, forgotten, 12},
		{"a failed claim keeps it", WakeOptions{Consumers: 2, Slots: 1, Enqueues: 2, Failures: 1, Stops: 1, Dropped: FailedPassesOn}, forgotten, 12},
		{"who stops keeps it", WakeOptions{Consumers: 2, Slots: 1, Enqueues: 2, Stops: 1, Dropped: StoppedPassesOn}, forgotten, 8},
		{"one that comes during a claim is forgotten", WakeOptions{Consumers: 2, Slots: 1, Enqueues: 3, Later: 1, Dropped: Again}, forgotten, 13},
		{"no timer for the next due time", WakeOptions{Consumers: 1, Slots: 1, Later: 1, Dropped: DueTimer}, forgotten, 9},
		{"a nack wakes nobody", WakeOptions{Consumers: 2, Slots: 1, Enqueues: 1, Nacks: 1, Dropped: BackPushes}, forgotten, 13},
		{"an expired lease wakes nobody", WakeOptions{Consumers: 2, Slots: 1, Enqueues: 1, Deaths: 1, Dropped: BackPushes}, forgotten, 11},
		{"an enqueue wakes nobody", WakeOptions{Consumers: 1, Slots: 1, Enqueues: 1, Dropped: EarlierPushes}, forgotten, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			searchBroken(t, NewWake(c.o), c.broken, c.steps)
		})
	}
}
