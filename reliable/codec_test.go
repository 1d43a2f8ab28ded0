package reliable

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestJSONCodecKeepsWhatItsTypeHolds(t *testing.T) {
	t.Parallel()
	type order struct {
		ID    int64
		Price json.Number
		Raw   []byte
	}
	in := order{ID: 130775545883395173, Price: "9007199254740993.10", Raw: []byte{0xff, 0x00}}
	data, err := JSON.Marshal(in)
	require.NoError(t, err)
	var out order
	require.NoError(t, JSON.Unmarshal(data, &out))
	require.Equal(t, in, out)
	require.Equal(t, "json", JSON.Name())
}

func TestJSONCodecDoesWhatItsCommentWarnsOf(t *testing.T) {
	t.Parallel()
	var number any
	require.NoError(t, JSON.Unmarshal([]byte(`9007199254740993`), &number))
	require.InDelta(t, 9007199254740992, number, 0, "a number decoded into any is a float64")

	data, err := JSON.Marshal("a\xffb")
	require.NoError(t, err)
	var text string
	require.NoError(t, JSON.Unmarshal(data, &text))
	require.Equal(t, "a\ufffdb", text)

	var n = 5
	require.NoError(t, JSON.Unmarshal([]byte(`null`), &n))
	require.Equal(t, 5, n)
	require.Error(t, JSON.Unmarshal(nil, &n))
	require.Error(t, JSON.Unmarshal([]byte(`1 2`), &n))
}
