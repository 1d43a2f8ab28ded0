package demo

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"github.com/schollz/progressbar/v3"
	"github.com/stretchr/testify/assert"
)

func TestPlainStoryIsLinesWithATime(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	s := newStory(&out, 10)
	s.say("one %s", "thing")
	s.update(progress{due: 10})
	s.update(progress{due: 9, processing: 1}) // too soon after the last
	s.end()
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	assert.Len(t, lines, 2)
	assert.Regexp(t, `^\d\d:\d\d:\d\d\.\d{3}  one thing$`, lines[0])
	assert.Regexp(t, `^\d\d:\d\d:\d\d\.\d{3}  0 acked, 0 dead, 0 running, 10 due$`, lines[1])
}

func TestBarMakesWayForLines(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	s := newStory(&out, 10)
	s.bar = progressbar.NewOptions(10, progressbar.OptionSetWriter(&out), progressbar.OptionUseANSICodes(true))
	s.update(progress{acked: 5, due: 5})
	s.say("one thing")
	s.end()
	s.say("the last")
	// What a terminal would show: the text since the line was last cleared.
	var shown []string
	for _, row := range strings.Split(out.String(), "\n") {
		shown = append(shown, regexp.MustCompile(`.*\x1b\[2K\r?`).ReplaceAllString(row, ""))
	}
	assert.Regexp(t, `one thing$`, shown[0])
	assert.NotContains(t, shown[0], "5 acked")
	assert.Regexp(t, `^\d\d:\d\d:\d\d\.\d{3}  the last$`, shown[1])
}
