package chaos

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/chaos/record"
)

// BenchmarkCheck judges a hundred thousand events and a million. Files are read from the disk, as they are.
func BenchmarkCheck(b *testing.B) {
	for _, jobs := range []int{18_800, 188_000} {
		h, s := simulate(1, simSize{jobs: jobs, workers: 8, slots: 16, kills: 20, freezes: 10, operators: true})
		files, events := onDisk(b, h)
		for name, history := range map[string]History{"memory": h, "files": files} {
			b.Run(fmt.Sprintf("%s/%d", name, events), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					r := mustCheck(b, history, s, nil)
					require.True(b, r.OK(), text(b, r))
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(events), "ns/event")
			})
		}
	}
}

// onDisk writes a history into files, and counts its events.
func onDisk(b *testing.B, h History) (files History, events int) {
	b.Helper()
	dir := b.TempDir()
	for i, log := range h {
		file, err := os.Create(filepath.Join(dir, fmt.Sprintf("%03d.jsonl", i)))
		require.NoError(b, err)
		buffer := bufio.NewWriter(file)
		out := json.NewEncoder(buffer)
		for k := range log.(Lines) {
			require.NoError(b, out.Encode(&log.(Lines)[k]))
			events++
		}
		require.NoError(b, buffer.Flush())
		require.NoError(b, file.Close())
		files = append(files, record.File(file.Name()))
	}
	return files, events
}
