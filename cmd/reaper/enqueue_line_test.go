package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/reliable"
)

func TestALineSaysAJob(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 31, 8, 0, 0, 5e8, time.UTC)
	for text, want := range map[string]reliable.Item{
		`{}`:           {Kind: "default"},
		`{"kind":"k"}`: {Kind: "k"},
		`{"payload":"text with \"quotes\", \u00e9, \ud83d\ude00 and \u0000"}`: {Kind: "default", Payload: []byte("text with \"quotes\", é, 😀 and \x00")},
		`{"payload": {"a" : [1, 2.50,null],"b":"\u00e9"} }`:                   {Kind: "default", Payload: []byte(`{"a" : [1, 2.50,null],"b":"\u00e9"}`)},
		`{"payload":12345678901234567890}`:                                    {Kind: "default", Payload: []byte("12345678901234567890")},
		`{"payload":null}`:                                                    {Kind: "default", Payload: []byte("null")},
		`{"payload":false}`:                                                   {Kind: "default", Payload: []byte("false")},
		`{"payload":""}`:                                                      {Kind: "default", Payload: []byte{}},
		`{"payload_base64":"AAH/"}`:                                           {Kind: "default", Payload: []byte{0, 1, 255}},
		`{"payload":"\\ud800 is no half"}`:                                    {Kind: "default", Payload: []byte(`\ud800 is no half`)},
		` {"id":"close:1","delay":"1h30m","headers":{"a":"b","c":""},"max_retries":0,"max_expiries":7} `: {
			Kind: "default", ID: "close:1", Delay: 90 * time.Minute, Headers: map[string]string{"a": "b", "c": ""}, MaxRetries: new(0), MaxExpiries: new(7),
		},
		`{"at":"2026-01-31T09:00:00.5+01:00"}`: {Kind: "default", At: at},
		`{"not_after":"2026-01-31T08:00:00Z"}`: {Kind: "default", NotAfter: at.Truncate(time.Second)},
		`{"on_conflict":"replace"}`:            {Kind: "default", OnConflict: reliable.Replace},
		`{"on_conflict":"keep"}`:               {Kind: "default"},
	} {
		got, err := parseLine([]byte(text), "default")
		require.NoError(t, err, text)
		assert.True(t, want.At.Equal(got.At), text)
		got.At = want.At
		assert.Equal(t, string(want.Payload), string(got.Payload), text)
		got.Payload = want.Payload
		assert.Equal(t, want, got, text)
	}
}

func TestAWrongLineSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`x`:                                "not JSON",
		`{"kind":"k"`:                      "not JSON",
		`{"kind":"k"} {}`:                  "not JSON",
		`{"kind":"k",}`:                    "not JSON",
		`[]`:                               "want a JSON object",
		`{"kind":"k","on_conflict":"go"}`:  "want reject, keep or replace",
		`{"kind":"k","on_conflict":1}`:     "is no text",
		`{"kind":"k","not_after":"soon"}`:  "want a time as",
		`"text"`:                           "want a JSON object",
		`null`:                             "want a JSON object",
		`{}`:                               "kind is missing",
		"{\"kind\":\"\xff\"}":              "not valid UTF-8",
		`{"Kind":"k"}`:                     `field "Kind" is not known`,
		`{"kind":"k","dealy":"1m"}`:        `field "dealy" is not known`,
		`{"kind":"k","kind":"l"}`:          `"kind" comes twice`,
		`{"kind":7}`:                       "kind is no text",
		`{"kind":"k","id":7}`:              "id is no text",
		`{"kind":"k","id":""}`:             "id is empty",
		`{"kind":"k","payload":"\ud800"}`:  "half of",
		`{"kind":"k","payload":"a\ude00"}`: "half of",
		`{"kind":"k","payload":"\ud800\u0041\ude00"}`:   "half of",
		`{"kind":"k","payload":"","payload_base64":""}`: "want one of them",
		`{"kind":"k","payload_base64":"AAH"}`:           "payload_base64 is no base64",
		`{"kind":"k","payload_base64":"AB=="}`:          "payload_base64 is no base64",
		`{"kind":"k","payload_base64":"AAH/\n"}`:        "line end",
		`{"kind":"k","delay":30}`:                       `delay is no text: want it as "30m"`,
		`{"kind":"k","delay":"soon"}`:                   `delay is "soon"`,
		`{"kind":"k","at":"tomorrow"}`:                  `at is "tomorrow"`,
		`{"kind":"k","at":1769846400}`:                  "at is no text",
		`{"kind":"k","headers":[]}`:                     "headers is no object",
		`{"kind":"k","headers":{"a":1}}`:                `headers has a mistake: "a" is no text`,
		`{"kind":"k","headers":{"a":"1","a":"2"}}`:      `"a" comes twice`,
		`{"kind":"k","max_retries":1.5}`:                "max_retries is no whole number",
		`{"kind":"k","max_expiries":"3"}`:               "max_expiries is no whole number",
		`{"kind":"k","max_retries":null}`:               "max_retries is no whole number",
	} {
		_, err := parseLine([]byte(text), "")
		require.Error(t, err, text)
		assert.Contains(t, err.Error(), want, text)
	}
}

// What a file made must be known again by every later version.
func TestIDsOfLinesNeverChange(t *testing.T) {
	t.Parallel()
	line := []byte(`{"kind":"order.close","payload":{"id":"10086"}}`)
	assert.Equal(t, "line:1:2mu8hgq6kdvmo4r9tq1r68u8u4", lineID("", 1, line))
	assert.Equal(t, "line:4097:2mu8hgq6kdvmo4r9tq1r68u8u4", lineID("", 4097, line))
	assert.NotEqual(t, lineID("", 1, line), lineID("2026-01-31", 1, line))
	assert.NotEqual(t, lineID("", 1, line), lineID("", 1, append([]byte(" "), line...)))
	assert.NotEqual(t, lineID("a", 1, []byte("b")), lineID("", 1, []byte("ab")))
}

func FuzzParseLine(f *testing.F) {
	f.Add(`{"kind":"k","payload":"\ud83d\ude00","headers":{"a":"b"}}`)
	f.Add(`{"payload":{"a":[1]},"delay":"1m","id":"x"}`)
	f.Add(`{"payload":"\\\ud800"}`)
	f.Fuzz(func(t *testing.T, text string) {
		item, err := parseLine([]byte(text), "k")
		if err != nil {
			return
		}
		// A payload that was taken says the same as a JSON reader of its own finds in the line.
		var fields map[string]json.RawMessage
		require.NoError(t, json.Unmarshal([]byte(text), &fields))
		raw, ok := fields["payload"]
		if !ok {
			return
		}
		var want, got any
		require.NoError(t, json.Unmarshal(raw, &want))
		if wanted, isText := want.(string); isText {
			require.Equal(t, wanted, string(item.Payload))
			return
		}
		require.NoError(t, json.Unmarshal(item.Payload, &got))
		require.Equal(t, want, got)
	})
}

func asItIs(text []byte, _ int64) (reliable.Item, error) {
	return reliable.Item{Payload: bytes.Clone(text)}, nil
}

// linesOf reads all lines of a text, as they would be numbered.
func linesOf(in io.Reader, steady bool, from int64) (batches []*batch[reliable.Item]) {
	source := newLineSource(in, steady, from, asItIs)
	for {
		b := source.next()
		batches = append(batches, b)
		if b.end != nil {
			return batches
		}
	}
}

func TestLinesAreNumberedBlankOnesIncluded(t *testing.T) {
	t.Parallel()
	const text = "one\r\n\n  \t\r\nfour\nfive \rx\n\nseven"
	for from, want := range map[int64]map[int64]string{
		1: {1: "one", 4: "four", 5: "five \rx", 7: "seven"},
		4: {4: "four", 5: "five \rx", 7: "seven"},
		7: {7: "seven"},
		8: {},
	} {
		for _, in := range []io.Reader{strings.NewReader(text), iotest.OneByteReader(strings.NewReader(text))} {
			got := map[int64]string{}
			batches := linesOf(in, true, from)
			for _, b := range batches {
				for _, l := range b.lines {
					got[l.number] = string(l.item.Payload)
				}
			}
			assert.Equal(t, want, got)
			last := batches[len(batches)-1]
			assert.EqualValues(t, 7, last.last)
			assert.EqualValues(t, len(text), last.read)
			assert.Equal(t, io.EOF, last.end)
		}
	}
}

func TestALineThatIsTooLongIsRefusedAndTheOthersAreNot(t *testing.T) {
	t.Parallel()
	const most = 100_000 // more than is read at once
	for _, end := range []string{"\n", "\r\n", ""} {
		for size, refused := range map[int]bool{most: false, most + 1: true, most + 2: true, most + 3: true, 3 * most: true} {
			text := "a\n" + strings.Repeat("x", size) + end
			if end != "" {
				text += "b\n"
			}
			source := newLineSource(strings.NewReader(text), true, 1, asItIs)
			source.most = most
			all := source.next().lines
			require.GreaterOrEqual(t, len(all), 2)
			assert.Equal(t, "a", string(all[0].item.Payload))
			if refused {
				var long *longLineError
				require.ErrorAs(t, all[1].err, &long)
				if end != "\r\n" {
					assert.EqualValues(t, size, long.size)
				}
				assert.Contains(t, long.Error(), "at most 100000 are allowed")
			} else {
				require.NoError(t, all[1].err)
				assert.Len(t, all[1].item.Payload, size)
			}
			if end != "" {
				assert.Equal(t, "b", string(all[2].item.Payload))
				assert.EqualValues(t, 3, all[2].number)
			}
		}
	}
	assert.Equal(t, 4<<20, newLineSource[reliable.Item](nil, true, 1, nil).most, "as the help says")
}

func TestBatchesAreBounded(t *testing.T) {
	t.Parallel()
	var sizes []int
	for _, b := range linesOf(strings.NewReader(strings.Repeat("{}\n", 600)), true, 1) {
		sizes = append(sizes, len(b.lines))
	}
	assert.Equal(t, []int{256, 256, 88}, sizes)
	sizes = nil
	for _, b := range linesOf(strings.NewReader(strings.Repeat(strings.Repeat("x", 1<<20)+"\n", 10)), true, 1) {
		sizes = append(sizes, len(b.lines))
	}
	assert.Equal(t, []int{4, 4, 2}, sizes)
}

// Who writes slowly is not kept waiting until a batch is full.
func TestLinesThatComeSlowlyGoAsTheyCome(t *testing.T) {
	t.Parallel()
	in, feeder := io.Pipe()
	source := newLineSource(in, false, 1, func([]byte, int64) (reliable.Item, error) { return reliable.Item{}, nil })
	for want := range 3 {
		go func() { _, _ = feeder.Write([]byte(strings.Repeat("{}\n", want+1))) }()
		assert.Len(t, source.next().lines, want+1)
	}
	require.NoError(t, feeder.Close())
	assert.Equal(t, io.EOF, source.next().end)
}

func TestAFileThatCannotBeReadOnIsTold(t *testing.T) {
	t.Parallel()
	batches := linesOf(io.MultiReader(strings.NewReader("{}\n{}\n"), iotest.ErrReader(errors.New("the disk broke"))), true, 1)
	last := batches[len(batches)-1]
	assert.ErrorContains(t, last.end, "the disk broke")
	assert.EqualValues(t, 2, last.last)
}

func TestALineReaderKeepsNoMoreThanALine(t *testing.T) {
	t.Parallel()
	const most, size = 100_000, 10_000_000
	source := newLineSource(bytes.NewReader(bytes.Repeat([]byte("x"), size)), true, 1, asItIs)
	source.most = most
	_, err := source.line()
	var long *longLineError
	require.ErrorAs(t, err, &long)
	assert.EqualValues(t, size, long.size)
	assert.LessOrEqual(t, cap(source.text), 2*most)
}
