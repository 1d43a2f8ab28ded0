package demo

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "workers.jsonl")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestFollowerWaitsForTheEndOfALine(t *testing.T) {
	t.Parallel()
	path := write(t, "")
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	require.NoError(t, err)
	defer file.Close()
	f, err := follow(path)
	require.NoError(t, err)
	defer f.close()
	for _, step := range []struct {
		text string
		ids  []string
	}{
		{"", nil},
		{`{"event":"start","id":"a"}` + "\n" + `{"event":"st`, []string{"a"}},
		{`art","id":"b"}`, nil},
		{"\n", []string{"b"}},
		{`{"id":"c"}` + "\n" + `{"id":"d"}` + "\n", []string{"c", "d"}},
	} {
		_, err := file.WriteString(step.text)
		require.NoError(t, err)
		lines, err := f.next()
		require.NoError(t, err)
		var ids []string
		for _, l := range lines {
			ids = append(ids, l.ID)
		}
		assert.Equal(t, step.ids, ids)
	}
	assert.Equal(t, 4, f.read)
}

func TestTornAndForeignLinesAreErrors(t *testing.T) {
	t.Parallel()
	_, err := readLines(write(t, `{"event":"up"}`+"\n"+`{"event":"sta`))
	assert.ErrorContains(t, err, "line 2 of the workers' file has no end")
	_, err = readLines(write(t, `{"event":"up"}`+"\nhello\n"))
	assert.ErrorContains(t, err, "line 2 of the workers' file is not one of ours")
	_, err = readLines(filepath.Join(t.TempDir(), "missing"))
	assert.ErrorIs(t, err, os.ErrNotExist)
}

func TestRecordersOfManyWorkersDoNotMixTheirLines(t *testing.T) {
	t.Parallel()
	const each = 200
	path := write(t, "")
	done := make(chan error, workers)
	for _, name := range []string{"A", "B", "C"} {
		r, err := newRecorder(path, name, func(err error) { t.Error(err) })
		require.NoError(t, err)
		go func() {
			for i := range each {
				r.write(line{Event: isStart, ID: "close:1", Fence: int64(i + 1)})
			}
			done <- r.close()
		}()
	}
	for range workers {
		require.NoError(t, <-done)
	}
	lines, err := readLines(path)
	require.NoError(t, err)
	next := map[string]int64{}
	for _, l := range lines {
		next[l.Worker]++
		require.Equal(t, next[l.Worker], l.Fence)
		require.Equal(t, os.Getpid(), l.PID)
	}
	assert.Equal(t, map[string]int64{"A": each, "B": each, "C": each}, next)
}
