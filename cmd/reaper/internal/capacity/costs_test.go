package capacity

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTheMeasuredCostsAreWhole(t *testing.T) {
	t.Parallel()
	c, err := Measured()
	require.NoError(t, err)
	assert.Equal(t, "make bench-scale", c.Command, "the costs of a quick run are not those to ship")
	assert.GreaterOrEqual(t, c.Largest(), 10_000_000)
	for _, s := range Scenarios() {
		a, err := c.Compute(&s.Plan)
		require.NoError(t, err, s.Name)
		assert.Positive(t, a.Nodes, s.Name)
	}
	assert.Contains(t, c.Assumptions()[0], c.Machine)
	assert.Contains(t, c.Assumptions()[0], c.Command)
}

func TestCostsThatCannotBeComputedWithAreRefused(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(round())
	require.NoError(t, err)
	got, err := Parse(text)
	require.NoError(t, err)
	require.Equal(t, round(), got)
	for want, change := range map[string]func(c *Costs){
		"no command":               func(c *Costs) { c.Command = "" },
		"growth: want":             func(c *Costs) { c.Growth[1].Work = -1 },
		"no growth":                func(c *Costs) { c.Growth = nil },
		"growing numbers of jobs":  func(c *Costs) { c.Growth[0].Due = 10_000 },
		"a negative cost":          func(c *Costs) { c.PerKB = -1 },
		"no producers":             func(c *Costs) { c.Consumers = nil },
		"no memory by payload":     func(c *Costs) { c.IDs = nil },
		"want growing batches":     func(c *Costs) { c.Producers[1].Batch = 1 },
		"producers: want":          func(c *Costs) { c.Producers[0].Server = 0 },
		"want growing concurrency": func(c *Costs) { c.Consumers[1].Requests = 1 },
		"extend: want":             func(c *Costs) { c.Extend[1].Server = 0 },
		"memory: want":             func(c *Costs) { c.Payloads[0].Size = 5_000 },
	} {
		c := round()
		change(c)
		text, err := json.Marshal(c)
		require.NoError(t, err)
		_, err = Parse(text)
		assert.ErrorContains(t, err, want)
	}
	_, err = Parse([]byte(`{"price": 3}`))
	require.ErrorContains(t, err, "costs:")
	_, err = Parse(nil)
	require.ErrorContains(t, err, "costs:")
}
