package msgpackcodec_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/reliable/msgpackcodec"
)

// FuzzDecode: arbitrary bytes give an error or a value, never a panic; and what decoded into any encodes, and decodes to
// the same again.
func FuzzDecode(f *testing.F) {
	full, err := msgpackcodec.Codec.Marshal(fullInvoice())
	require.NoError(f, err)
	f.Add(full)
	for _, payload := range samplePayloads(f)[:8] {
		encoded, err := msgpackcodec.Codec.Marshal(payload)
		require.NoError(f, err)
		f.Add(encoded)
	}
	golden, err := filepath.Glob("../../testdata/wire/v1/*.bin")
	require.NoError(f, err)
	require.NotEmpty(f, golden)
	for _, file := range golden {
		record, err := os.ReadFile(file)
		require.NoError(f, err)
		if len(record) < 8<<10 {
			f.Add(record)
		}
	}
	for _, bytes := range []string{
		"", "\x81\x91\x01\x01", "\xdd\xff\xff\xff\xff", "\xc1", "\xd4\xff\x00", "\xc7\x0c\xff", "\xd5\x05ab",
		"\xc7\x0c\xff\xff\xff\xff\xff\x7f\xff\xff\xff\xff\xff\xff\xff", "\x92\xa1a\xc0", "\x81\xa5lines\xdd\x00\x00\x00\x01\x80",
	} {
		f.Add([]byte(bytes))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, target := range []any{new(invoice), new([]line), new(map[any]any), new(*ring), new(string), new(broken)} {
			_ = msgpackcodec.Codec.Unmarshal(data, target)
		}
		var value any
		if msgpackcodec.Codec.Unmarshal(data, &value) != nil {
			return
		}
		again, err := msgpackcodec.Codec.Marshal(value)
		require.NoError(t, err)
		var second any
		require.NoError(t, msgpackcodec.Codec.Unmarshal(again, &second))
		third, err := msgpackcodec.Codec.Marshal(second)
		require.NoError(t, err)
		require.Len(t, third, len(again))
	})
}
