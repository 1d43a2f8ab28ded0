package chaos

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/chaos/record"
)

// text as a Log.
type written string

func (w written) Each(each func(*record.Event) error) (torn bool, err error) {
	return record.Read(strings.NewReader(string(w)), each)
}

// FuzzCheck: whatever stands in a history, it is judged, and gives the same report each time.
func FuzzCheck(f *testing.F) {
	h, s := simulate(3, simSize{jobs: 12, workers: 2, slots: 2, kills: 1, freezes: 1, operators: true})
	for _, log := range h {
		var lines strings.Builder
		out := json.NewEncoder(&lines)
		for k := range log.(Lines) {
			require.NoError(f, out.Encode(&log.(Lines)[k]))
		}
		f.Add(lines.String())
	}
	f.Add(`{"k":"open","t":0,"v":1,"p":"p","q":"q","lease_ms":1000,"slots":1}
{"k":"fault","t":5,"n":1,"o":"begin","fx":["steps","loses","outage","freezes","dies","cut"]}
{"k":"clock","t":1,"u":2,"s":3}
{"k":"settle","t":9,"id":"job-1","f":-7,"o":"dead","a":3}`)
	f.Fuzz(func(t *testing.T, text string) {
		first, err := Check(History{written(text)}, s, nil)
		if err != nil {
			return
		}
		second, err := Check(History{written(text)}, s, nil)
		require.NoError(t, err)
		require.Equal(t, first, second)
	})
}
