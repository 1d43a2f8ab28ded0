package msgpackcodec_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/reliable/msgpackcodec"
	"github.com/leaseq/leaseq/testdata"
)

// samplePayloads are the payloads of the sample jobs, with their numbers as they stand there.
func samplePayloads(t testing.TB) []map[string]any {
	t.Helper()
	var all []map[string]any
	for _, text := range bytes.Split(bytes.TrimSpace(testdata.Orders()), []byte("\n")) {
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.UseNumber()
		var job struct{ Payload map[string]any }
		require.NoError(t, decoder.Decode(&job))
		require.NotEmpty(t, job.Payload)
		for key, value := range job.Payload {
			if number, ok := value.(json.Number); ok {
				whole, err := number.Int64()
				require.NoError(t, err)
				job.Payload[key] = whole
			}
		}
		all = append(all, job.Payload)
	}
	require.Len(t, all, 120)
	return all
}

func TestSamplePayloadsComeBackAndAreSmallerThanJSON(t *testing.T) {
	t.Parallel()
	packed, text := 0, 0
	for _, in := range samplePayloads(t) {
		payload, err := msgpackcodec.Codec.Marshal(in)
		require.NoError(t, err)
		var out map[string]any
		require.NoError(t, msgpackcodec.Codec.Unmarshal(payload, &out))
		require.Equal(t, in, out)
		asJSON, err := json.Marshal(in)
		require.NoError(t, err)
		packed, text = packed+len(payload), text+len(asJSON)
	}
	require.Less(t, packed, text)
}
