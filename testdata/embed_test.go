package testdata_test

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/leaseq/leaseq/testdata"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type line struct {
	ID        string            `json:"id"`
	Kind      string            `json:"kind"`
	DelayMs   *int              `json:"delay_ms"`
	Payload   json.RawMessage   `json:"payload"`
	Headers   map[string]string `json:"headers"`
	Behaviour string            `json:"behaviour"`
}

// lines parses the sample, and fails the test on a field that README.md does not know.
func lines(t *testing.T) []line {
	t.Helper()
	text := string(testdata.Orders())
	require.True(t, strings.HasSuffix(text, "\n"))
	require.NotContains(t, text, "\r")
	var all []line
	for i, one := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		d := json.NewDecoder(strings.NewReader(one))
		d.DisallowUnknownFields()
		var l line
		require.NoError(t, d.Decode(&l), "line %d", i+1)
		require.False(t, d.More(), "line %d holds more than one object", i+1)
		all = append(all, l)
	}
	return all
}

func TestEveryOrderIsAValidJob(t *testing.T) {
	t.Parallel()
	kinds := map[string]int{}
	ids := map[string]bool{}
	for i, l := range lines(t) {
		assert.False(t, ids[l.ID], "line %d: %q a second time", i+1, l.ID)
		ids[l.ID] = true
		assert.True(t, len(l.ID) >= 1 && len(l.ID) <= 256 && utf8.ValidString(l.ID), "line %d: ID %q", i+1, l.ID)
		assert.Equal(t, -1, strings.IndexFunc(l.ID, unicode.IsControl), "line %d: ID %q", i+1, l.ID)
		kinds[l.Kind]++
		if assert.NotNil(t, l.DelayMs, "line %d", i+1) {
			assert.True(t, *l.DelayMs >= 0 && *l.DelayMs <= 4000, "line %d: delay %d", i+1, *l.DelayMs)
		}
		var payload map[string]any
		require.NoError(t, json.Unmarshal(l.Payload, &payload), "line %d", i+1)
		assert.NotEmpty(t, payload["customer"], "line %d", i+1)
		if l.Headers != nil {
			assert.NotEmpty(t, l.Headers, "line %d: no headers are left out", i+1)
		}
	}
	for _, kind := range []string{"order.close", "refund.pay", "coupon.grant", "notify.send"} {
		assert.GreaterOrEqual(t, kinds[kind], 20, kind)
	}
	assert.Len(t, kinds, 4)
}

func TestMixOfBehavioursIsAsDescribed(t *testing.T) {
	t.Parallel()
	all := lines(t)
	behaviours := map[string]int{}
	delayed := 0
	for i, l := range all {
		behaviours[l.Behaviour]++
		if l.Behaviour == "slow" {
			assert.Zero(t, *l.DelayMs, "line %d", i+1)
			assert.Less(t, i, 50)
		}
		if *l.DelayMs > 0 {
			delayed++
		}
	}
	assert.Len(t, all, 120)
	assert.Equal(t, map[string]int{"ok": 105, "fail_once": 8, "slow": 6, "poison": 1}, behaviours)
	assert.Equal(t, 18, delayed)
}

func TestAmountsAreWholeCents(t *testing.T) {
	t.Parallel()
	currency := regexp.MustCompile(`^[A-Z]{3}$`)
	for i, l := range lines(t) {
		d := json.NewDecoder(bytes.NewReader(l.Payload))
		d.UseNumber()
		var payload map[string]any
		require.NoError(t, d.Decode(&payload))
		amounts := 0
		for name, value := range payload {
			if !strings.HasSuffix(name, "_cents") {
				continue
			}
			amounts++
			cents, err := value.(json.Number).Int64()
			require.NoError(t, err, "line %d: %s", i+1, name)
			assert.Positive(t, cents, "line %d: %s", i+1, name)
		}
		if amounts > 0 {
			assert.Regexp(t, currency, payload["currency"], "line %d", i+1)
		}
		if at, ok := payload["placed_at"].(string); ok {
			_, err := time.Parse(time.RFC3339, at)
			assert.NoError(t, err, "line %d", i+1)
		}
	}
}

func TestOrdersReturnsACopy(t *testing.T) {
	t.Parallel()
	first := testdata.Orders()
	clear(first)
	assert.NotEqual(t, first, testdata.Orders())
}
