package msgpackcodec_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/reliable/msgpackcodec"
)

func TestStructTagsCanBeChosen(t *testing.T) {
	t.Parallel()
	type tagged struct {
		A int `msgpack:"m" json:"j" bson:"b"`
		B int `json:"only_json"`
	}
	keysOf := func(tags []string) []string {
		codec, err := msgpackcodec.New(&msgpackcodec.Options{Tags: tags})
		require.NoError(t, err)
		payload, err := codec.Marshal(tagged{1, 2})
		require.NoError(t, err)
		var back tagged
		require.NoError(t, codec.Unmarshal(payload, &back))
		require.Equal(t, tagged{1, 2}, back)
		var fields map[string]int
		require.NoError(t, codec.Unmarshal(payload, &fields))
		names := make([]string, 3)
		for name, n := range fields {
			names[n] = name
		}
		return names[1:]
	}
	require.Equal(t, []string{"m", "only_json"}, keysOf(nil))
	require.Equal(t, []string{"b", "B"}, keysOf([]string{"bson"}))
	require.Equal(t, []string{"j", "only_json"}, keysOf([]string{"json", "msgpack"}))
	same, err := msgpackcodec.New(nil)
	require.NoError(t, err)
	require.Same(t, msgpackcodec.Codec, same)
}

func TestEveryBadTagIsNamed(t *testing.T) {
	t.Parallel()
	_, err := msgpackcodec.New(&msgpackcodec.Options{Tags: []string{"json", "", "a b", "json", `x:"y"`}})
	require.EqualError(t, err, `msgpackcodec.New: Tags[1] is empty: want the name of a struct tag
Tags[2] is "a b": the name of a struct tag has no blank, colon, quote or control character
Tags[3] is "json" once more: name each once
Tags[4] is "x:\"y\"": the name of a struct tag has no blank, colon, quote or control character`)
	_, err = msgpackcodec.New(&msgpackcodec.Options{Tags: []string{}})
	require.ErrorContains(t, err, "Tags is empty but not nil")
}
