package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFlagsThatCannotBeAreRefused(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"more", `unexpected argument "more"`},
		{"-rounds 0", "-rounds 0: want 1 to 100"},
		{"-rounds many", "rounds"},
		{"-systems leaseq,nsq", `no system is called "nsq": there are leaseq, asynq, pop`},
		{"-only speed", `no measurement is called "speed"`},
		{"-quik", "-h lists the flags"},
		{"-fast", "for the worker processes"},
		{"-worker leaseq", "-worker needs -addr"},
		{"-worker nsq -addr x:1 -concurrency 1", `no system is called "nsq"`},
	} {
		_, err := parse(strings.Fields(c.args), nil)
		require.ErrorContains(t, err, c.want, c.args)
	}
}

func TestFlagsChooseWhatIsMeasured(t *testing.T) {
	s, err := parse([]string{"-quick", "-json", "-rounds", "2", "-only", "process, idle", "-systems", "pop"}, nil)
	require.NoError(t, err)
	require.True(t, s.json)
	require.Equal(t, 2, s.plan().rounds)
	require.Equal(t, quickPlan().process, s.plan().process)
	require.Equal(t, []string{"process", "idle"}, s.only)
	require.Equal(t, []string{"pop"}, s.systems)

	s, err = parse(nil, nil)
	require.NoError(t, err)
	require.Equal(t, wholePlan(), s.plan())
}

func TestHelpNamesEveryFlagButThoseOfWorkers(t *testing.T) {
	var out strings.Builder
	_, err := parse([]string{"-h"}, &out)
	require.ErrorIs(t, err, errHelp)
	for _, flag := range []string{"-aof", "-json", "-only", "-quick", "-rounds", "-systems"} {
		require.Contains(t, out.String(), "\n  "+flag+" ")
	}
	require.NotContains(t, out.String(), "-worker")
	for line := range strings.SplitSeq(out.String(), "\n") {
		require.LessOrEqual(t, len(line), 150, line)
	}
}
