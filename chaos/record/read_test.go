package record_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/chaos/record"
)

const head = `{"k":"open","t":0,"v":1,"p":"p","q":"q"}` + "\n"

func read(text string) (n int, torn bool, err error) {
	torn, err = record.Read(strings.NewReader(text), func(*record.Event) error { n++; return nil })
	return n, torn, err
}

func TestATornLastLineIsLeftOut(t *testing.T) {
	t.Parallel()
	whole := head + `{"k":"start","t":5,"id":"a","f":7,"a":1}` + "\n"
	for cut := range whole {
		n, torn, err := read(whole[:cut])
		require.NoError(t, err, whole[:cut])
		require.Equal(t, strings.Count(whole[:cut], "\n"), n)
		require.Equal(t, cut == 0 || whole[cut-1] != '\n', torn, whole[:cut])
	}
	n, torn, err := read(whole)
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.False(t, torn)
}

func TestWhatIsNoHistoryIsRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"garbage\n":                               "line 1",
		head + "garbage\n":                        "line 2",
		head + "{}\n":                             "no kind",
		`{"k":"start","t":0}` + "\n":              `line 1 is of kind "start"`,
		head + head:                               `line 2 is of kind "open"`,
		`{"k":"open","v":2}` + "\n":               "version 2",
		head + strings.Repeat("x", 20<<10) + "\n": "longer than",
		head + `{"k":"start","t":"soon"}` + "\n":  "line 2",
	} {
		_, _, err := read(text)
		require.ErrorContains(t, err, want)
	}
}

func TestAnErrorOfEachEndsTheReading(t *testing.T) {
	t.Parallel()
	mine := errors.New("enough")
	_, err := record.Read(strings.NewReader(head+head), func(*record.Event) error { return mine })
	require.ErrorIs(t, err, mine)
}

func FuzzRead(f *testing.F) {
	f.Add(head + `{"k":"settle","t":5,"id":"a","f":7,"o":"acked"}` + "\n")
	f.Add(head + `{"k":"fault","t":5,"n":1,"o":"begin","fx":["dies"]}`)
	f.Add("")
	f.Add("{")
	f.Fuzz(func(t *testing.T, text string) {
		n, torn, err := read(text)
		if err == nil && n == 0 && !torn {
			t.Fatal("a history without a line is whole")
		}
		if n > strings.Count(text, "\n") {
			t.Fatalf("%d events in %d lines", n, strings.Count(text, "\n"))
		}
	})
}
