package cases

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/lease"
	"github.com/leaseq/leaseq/reliable"
)

// A page costs the same among a thousand jobs and among millions, all with one time, also behind a job that is gone.
func TestAPageOfAListingCostsTheSameHoweverManyJobsThereAre(t *testing.T) {
	t.Parallel()
	n := shape(20_000, 2_000_000)
	server := redistest.Server(t, nil)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ReadTimeout: time.Minute})
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	l := laneOn(t, "pages", rdb, nil)
	l.dead(1000)
	// The others are made by the server itself, with the record of the first.
	for from := 1000; from < n; from += 20_000 {
		require.NoError(t, rdb.Eval(t.Context(), `
			local record, score = redis.call('HGET', KEYS[1], 'dead0'), redis.call('ZSCORE', KEYS[2], 'dead0')
			for i = tonumber(ARGV[1]), tonumber(ARGV[2]) do
				redis.call('HSET', KEYS[1], 'dead' .. i, record)
				redis.call('ZADD', KEYS[2], score, 'dead' .. i)
			end
			return 1`, []string{l.keys.Key("jobs"), l.keys.Key("dead")}, from, min(from+20_000, n)-1).Err())
	}
	require.EqualValues(t, n, l.stats().Dead)
	require.NoError(t, rdb.Do(t.Context(), "slowlog", "reset").Err())
	slow := keepSlowScripts(t, server, rdb, 10*time.Millisecond)
	seen := map[string]bool{}
	o := reliable.ListOptions{}
	began, pages := time.Now(), 0
	for more := true; more; pages++ {
		page, err := l.queue.List(t.Context(), reliable.Dead, lease.DefaultBatch, &o)
		require.NoError(t, err)
		for _, info := range page.Jobs {
			seen[info.ID] = true
		}
		if len(page.Jobs) > 0 { // the next page begins where a job has stood
			last := page.Jobs[len(page.Jobs)-1].ID
			results, err := l.queue.Purge(t.Context(), reliable.Dead, last)
			require.NoError(t, err)
			require.NoError(t, results[0])
		}
		o.After, more = page.Next, page.More
	}
	t.Logf("%d jobs in %d pages: %v a page", n, pages, time.Since(began)/time.Duration(pages))
	require.Len(t, seen, n)
	require.True(t, seen[fmt.Sprint("dead", n-1)])
	slow.check(t)
}
