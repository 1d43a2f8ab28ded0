package lease

import (
	"fmt"
	"strings"
	"testing"

	"github.com/leaseq/leaseq/internal/redistest"
)

// Claims 50 jobs and acks them, in two round trips.
func BenchmarkClaimSettle(b *testing.B) {
	const batch = 50
	redistest.NeedServer(b)
	q := onRedis(b)
	record := []byte(strings.Repeat("r", 200))
	for i := 0; b.Loop(); i++ {
		b.StopTimer()
		items := make([]Item, batch)
		for j := range items {
			items[j] = Item{ID: fmt.Sprintf("%d-%d", i, j), Record: record}
		}
		q.putItems(b, items...)
		b.StartTimer()
		verdicts := make([]Verdict, batch)
		for j, l := range q.take(b, batch) {
			verdicts[j] = verdict(Ack, l)
		}
		q.settle(b, verdicts...)
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*batch), "µs/job")
}

func BenchmarkEnqueue(b *testing.B) {
	for _, batch := range []int{1, 100} {
		b.Run(fmt.Sprint(batch), func(b *testing.B) {
			redistest.NeedServer(b)
			q := onRedis(b)
			record := []byte(strings.Repeat("r", 200))
			for i := 0; b.Loop(); i++ {
				items := make([]Item, batch)
				for j := range items {
					items[j] = Item{ID: fmt.Sprintf("%d-%d", i, j), Record: record}
				}
				q.putItems(b, items...)
				if (i+1)*batch%100_000 == 0 {
					b.StopTimer()
					q.purgeAll(b)
					b.StartTimer()
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*batch), "µs/job")
		})
	}
}

// purgeAll empties due, so that a benchmark does not fill the server.
func (b *bench) purgeAll(t testing.TB) {
	t.Helper()
	for cursor := (Cursor{}); !cursor.Done; {
		if _, err := b.PurgeNext(t.Context(), Due, &cursor, MaxBatch); err != nil {
			t.Fatal(err)
		}
	}
}
