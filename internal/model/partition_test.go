package model

import (
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// busy is a partition with a job in each place, and the picture that Redis would give of it.
func busy(t *testing.T) (*Partition, *Picture) {
	t.Helper()
	p := NewPartition("stub")
	p.Holders["7-s"] = "host/1"
	p.Answered("7-s", 3, 1000, "ccc")
	require.Equal(t, "ccc1", p.Enqueue(1000, []Item{{ID: "a", Record: "ra"}, {ID: "b", Record: "rb"}, {ID: "c", Record: "rc", Delay: 50}, {ID: "a", Record: "again"}}))
	got := p.Claim(1001, &Claim{Session: "7-s", Number: 4, N: 2, Bytes: 100}, 1_001_000)
	require.Equal(t, []string{"a", "b"}, got.IDs)
	require.Equal(t, Time{At: 49, To: 50}, got.NextDue)
	require.Equal(t, "x2", p.Settle(1002, []Verdict{
		{Op: 'b', ID: "a", Token: "1001000:7-s:4", Reason: "why", Stack: "stack"}, {Op: 'a', ID: "b", Token: "1001000:7-s:4"},
	}))
	p.Expire(1003, 5, true)
	return p, &Picture{
		Scores: map[string]map[string]int64{Due: {"c": 1051}, Processing: {"b": 16_002}, Dead: {"a": 1002}},
		Hashes: map[string]map[string]string{
			"jobs": {"a": "ra", "b": "rb", "c": "rc"}, "leases": {"b": "1001001:7-s:4"}, "counts": {"a": "1 0 0 - - -"},
			"errors": {"a": "1002\t1\thost/1\twhy\n\nstack"}, "sessions": {"7-s": "3 1000 ccc"}, "holders": {"7-s": "host/1"},
			"sweep": {"swept": "1003"},
			"stats": {"enqueued": "3", "claimed": "2", "buried": "1", "died": "1", "refused": "1"},
		},
		Wake: 1, Fence: 1_001_001,
	}
}

func TestCompareAcceptsWhatTheModelSaysAndLearnsTheScores(t *testing.T) {
	t.Parallel()
	p, picture := busy(t)
	require.Empty(t, p.Compare(picture))
	assert.Equal(t, Exactly(1051), p.Jobs["c"].Score)
	assert.Equal(t, []string{"c"}, p.UpTo(Due, 1051, 9))
	assert.Empty(t, p.UpTo(Due, 1050, 9))
}

func TestCompareTellsWhateverDiffers(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(got *Picture){
		"another record":         func(got *Picture) { got.Hashes["jobs"]["a"] = "other" },
		"no record":              func(got *Picture) { delete(got.Hashes["jobs"], "c") },
		"another token":          func(got *Picture) { got.Hashes["leases"]["b"] = "1:x:1" },
		"a mark":                 func(got *Picture) { got.Hashes["leases"]["b"] = "!1001001:7-s:4" },
		"a failure less":         func(got *Picture) { delete(got.Hashes["counts"], "a") },
		"another reason":         func(got *Picture) { got.Hashes["errors"]["a"] = "1002\t1\thost/1\twhat\n\nstack" },
		"another session number": func(got *Picture) { got.Hashes["sessions"]["7-s"] = "4 1000 ccc" },
		"one session more":       func(got *Picture) { got.Hashes["sessions"]["8-s"] = "0 1000 " },
		"a grace":                func(got *Picture) { got.Hashes["sweep"]["row"] = "1" },
		"a counter":              func(got *Picture) { got.Hashes["stats"]["acked"] = "1" },
		"due too early":          func(got *Picture) { got.Scores[Due]["c"] = 1049 },
		"an expiry too late":     func(got *Picture) { got.Scores[Processing]["b"] = 16_003 },
		"in two places":          func(got *Picture) { got.Scores[Due]["b"] = 1000 },
		"in none":                func(got *Picture) { delete(got.Scores[Dead], "a") },
		"no wake-up":             func(got *Picture) { got.Wake = 0 },
		"two wake-ups":           func(got *Picture) { got.Wake = 2 },
		"another fence":          func(got *Picture) { got.Fence++ },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, picture := busy(t)
			change(picture)
			require.NotEmpty(t, p.Compare(picture))
		})
	}
}

func TestCompareSeesThatTheCountersDoNotAddUp(t *testing.T) {
	t.Parallel()
	p, picture := busy(t)
	p.Stats["claimed"]++
	picture.Hashes["stats"] = maps.Clone(picture.Hashes["stats"])
	picture.Hashes["stats"]["claimed"] = "3"
	bad := p.Compare(picture)
	require.Len(t, bad, 1)
	assert.True(t, strings.HasPrefix(bad[0], "claimed 3 is not ended 1 + in processing 1"), bad[0])
}
