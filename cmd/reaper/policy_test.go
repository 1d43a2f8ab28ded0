package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/lease"
)

// policyOf runs a command about the limits of a queue and reads its JSON.
func policyOf(t *testing.T, s *site, args ...string) (policyJSON, map[string]limitJSON) {
	t.Helper()
	code, out, errOut := invoke(t, nil, s.args(serverURL(t), append(args, "--json")...)...)
	require.Zero(t, code, errOut)
	var got policyJSON
	require.NoError(t, json.Unmarshal([]byte(out), &got))
	limits := map[string]limitJSON{}
	for _, l := range got.Limits {
		limits[l.Name] = l
	}
	return got, limits
}

func TestLimitsArePinnedShownAndUnpinned(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	store := newStore(t, redistest.Client(t), s.prefix, s.queue, 30*time.Second)
	_, err := store.Publish(t.Context(), &lease.Policy{Lease: 30 * time.Second, MaxRetries: new(7)})
	require.NoError(t, err)
	_, limits := policyOf(t, s, "policy", "show", s.queue)
	assert.Equal(t, limitJSON{Name: "lease", Value: "30s", From: "deployment"}, limits["lease"])
	assert.Equal(t, limitJSON{Name: "max_retries", Value: "7", From: "deployment"}, limits["max_retries"])
	assert.Equal(t, limitJSON{Name: "max_expiries", Value: "5", From: "built-in"}, limits["max_expiries"])

	for range 2 { // it is safe to run again
		_, limits = policyOf(t, s, "policy", "set", s.queue, "max_retries=0", "max_length=1000", "job_timeout=10m")
	}
	_, err = store.Publish(t.Context(), &lease.Policy{MaxRetries: new(9)})
	require.NoError(t, err)
	assert.Equal(t, "pinned", limits["max_length"].From)
	_, held := policyOf(t, s, "policy", "set", s.queue, "concurrency=5", "rate=100/10s")
	for name, want := range map[string]string{"concurrency": "5", "rate": "100", "rate_interval": "10s"} {
		assert.Equal(t, "pinned "+want, held[name].From+" "+held[name].Value)
	}
	code, out, errOut := invoke(t, nil, s.args(serverURL(t), "policy", "show", s.queue)...)
	require.Zero(t, code, errOut)
	for _, want := range []string{"max_retries 0 pinned 9", "max_length 1000 pinned none", "job_timeout 10m pinned none", "max_delay 168h built-in"} {
		assert.Contains(t, strings.Join(strings.Fields(out), " "), want)
	}

	code, _, errOut = invoke(t, nil, s.args(serverURL(t), "policy", "unset", s.queue, "lease")...)
	assert.Zero(t, code)
	assert.Contains(t, errOut, "none of them was pinned")
	_, limits = policyOf(t, s, "policy", "unset", s.queue, "max_retries")
	assert.Equal(t, limitJSON{Name: "max_retries", Value: "9", From: "deployment"}, limits["max_retries"])
	assert.Equal(t, "pinned", limits["max_length"].From)
	_, limits = policyOf(t, s, "policy", "unset", s.queue, "--all")
	assert.Equal(t, limitJSON{Name: "max_length", Value: "none", From: "built-in"}, limits["max_length"])
}

func TestMistakesAboutLimitsSayWhatWouldBeRight(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for line, want := range map[string]string{
		"set q":                                    "requires at least 2 arg",
		"set q max_retries":                        "want LIMIT=VALUE, as max_retries=5",
		"set q retries=5":                          "want one of lease, max_lease, job_timeout, max_retries",
		"set q lease=30":                           "want a duration as 30s, 20ms to 24h",
		"set q max_retries=-1":                     "want a whole number, 0 to 1000000",
		"set q max_retries=1 max_retries=2":        "given twice",
		"set q header_limit=5000":                  "want bytes, 0 to 4096, or none",
		"set q backoff_base=1h backoff_cap=1s":     "backoff_base is 1h, longer than backoff_cap, 1s",
		"set q lease=1m max_lease=30s":             "lease is 1m, longer than max_lease, 30s",
		"set q rate=x/1s":                          "rate=x: want a whole number, 0 to 1000000, or none; with its interval as 100/1s",
		"set q rate=5/":                            "rate_interval=: want a duration as 30s, 1ms to 24h, or none",
		"set q rate=5/1s rate_interval=2s":         "rate_interval is given twice",
		"set q concurrency=-1":                     "want a whole number, 0 to 1000000000, or none",
		"unset q":                                  "or --all",
		"unset q leases":                           "want one of lease",
		"unset q lease --all":                      "and not both",
		"show":                                     "accepts 1 arg",
		"show bad{name":                            "queue name",
		"set q lease=30s max_length=x max_delay=y": "max_delay=y: want a duration",
	} {
		code, out, errOut := invoke(t, nil, s.args(serverURL(t), append([]string{"policy"}, strings.Fields(line)...)...)...)
		assert.Equal(t, exitUsage, code, line)
		assert.Empty(t, out)
		assert.Contains(t, errOut, want, line)
	}
	for _, line := range []string{"show nobodys", "set nobodys max_retries=1", "unset nobodys --all"} {
		code, _, errOut := invoke(t, nil, s.args(serverURL(t), append([]string{"policy"}, strings.Fields(line)...)...)...)
		assert.Equal(t, exitFailure, code, line)
		assert.Contains(t, errOut, "nobody has used it", line)
	}
	names, err := lease.Queues(t.Context(), redistest.Client(t), s.prefix)
	require.NoError(t, err)
	assert.NotContains(t, names, "nobodys", "a misspelt name makes no queue")
}

func TestTwoDeploymentsThatDifferAreToldByPolicyAndStats(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	rdb := redistest.Client(t)
	newStore(t, rdb, s.prefix, s.queue, 30*time.Second)
	for holder, retries := range map[string]int{"mail/1": 3, "billing/1": 5} {
		store, err := lease.NewStore(rdb, s.queue, &lease.StoreOptions{Prefix: s.prefix, Holder: holder})
		require.NoError(t, err)
		_, err = store.Publish(t.Context(), &lease.Policy{MaxRetries: &retries})
		require.NoError(t, err)
		require.NoError(t, store.Close(t.Context()))
	}
	for _, command := range [][]string{{"policy", "show", s.queue}, {"stats", s.queue}} {
		code, out, errOut := invoke(t, nil, s.args(serverURL(t), command...)...)
		require.Zero(t, code, errOut)
		for _, want := range []string{"publish different limits", "max_retries is ", "3 of mail/1", "5 of billing/1"} {
			assert.Contains(t, out, want)
		}
	}
	got, _ := policyOf(t, s, "policy", "show", s.queue)
	assert.Contains(t, got.Differ, "3 of mail/1")
	assert.GreaterOrEqual(t, len(got.Deployments), 2)
	code, out, _ := invoke(t, nil, s.args(serverURL(t), "stats", s.queue, "--json")...)
	require.Zero(t, code)
	var stats statsJSON
	require.NoError(t, json.Unmarshal([]byte(out), &stats))
	assert.Contains(t, stats.Queues[0].Policies, "5 of billing/1")
}

func TestNamesOfLimitsAreCompleted(t *testing.T) {
	t.Parallel()
	code, out, _ := invoke(t, nil, "__complete", "policy", "set", "orders", "max_retries=5", "max_")
	assert.Zero(t, code)
	assert.Equal(t, "max_lease=\nmax_expiries=\nmax_length=\nmax_delay=\n", out[:strings.Index(out, ":")])
	code, out, _ = invoke(t, nil, "__complete", "policy", "unset", "orders", "max_length", "max_l")
	assert.Zero(t, code)
	assert.Equal(t, "max_lease\n", out[:strings.Index(out, ":")])
}
