package archtest

import (
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

func TestThingsHaveOneWord(t *testing.T) {
	t.Parallel()
	bad, err := CheckWords(os.DirFS(root(t)))
	require.NoError(t, err)
	require.Empty(t, bad)
}

func TestWordsOfOtherQueuesAreFound(t *testing.T) {
	t.Parallel()
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	bad, err := CheckWords(fstest.MapFS{
		"README.md": file("A job is\nno Task, and its multitasking recovery is no matter.\n"),
		"a.lua":     file("-- a stalled job\n"),
		"a.go": file("package p\n\n// F is for messages.\nfunc F() { message := recover(); _, _ = message, log.Message }\n\n" +
			"type ReserveJob struct{}\n\nvar s = \"made visible\"\n"),
		"a_test.go": file("package p\n\n// a task\n"),
	})
	require.NoError(t, err)
	require.Equal(t, []string{
		`README.md:2: "Task" has a word of its own here`,
		`a.go:3:1: "messages" has a word of its own here`,
		`a.go:6:6: "Reserve" has a word of its own here`,
		`a.go:8:9: "visible" has a word of its own here`,
		`a.lua:1: "stalled" has a word of its own here`,
	}, bad)

	_, err = CheckWords(fstest.MapFS{"bad.go": file("no Go at all")})
	require.ErrorContains(t, err, "bad.go")
}

func TestAStrangerThatIsSpokenStandsInItsFileOnly(t *testing.T) {
	t.Parallel()
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	text := "package p\n\ntype T struct {\n\tRecovered int `json:\"recovered\"`\n}\n\n// Recover it, and what was recovered.\n"
	bad, err := CheckWords(fstest.MapFS{"chaos/outcome.go": file(text), "chaos/other.go": file(text)})
	require.NoError(t, err)
	require.Equal(t, []string{
		`chaos/other.go:7:1: "Recover" has a word of its own here`,
		`chaos/other.go:7:1: "recovered" has a word of its own here`,
		`chaos/other.go:4:2: "Recovered" has a word of its own here`,
		`chaos/other.go:4:16: "recovered" has a word of its own here`,
		`chaos/outcome.go:7:1: "Recover" has a word of its own here`,
	}, bad)

	for name, words := range Spoken {
		text, err := os.ReadFile(filepath.Join(root(t), name))
		require.NoError(t, err, "%s is excused and is not there", name)
		for word, why := range words {
			require.Contains(t, string(text), word, name)
			require.NotEmpty(t, why)
		}
	}
}
