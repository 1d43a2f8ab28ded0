package failover

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// covered returns a moment, a quarter of a second ago at most, up to which a replica has all that its primary has answered:
// what a failover may lose was answered later.
func covered(t *testing.T, primary, replica *redis.Client) time.Time {
	t.Helper()
	var from time.Time
	require.Eventually(t, func() bool {
		from = time.Now()
		written := offset(primary, "master_repl_offset")
		for time.Since(from) < lag {
			if written > 0 && offset(replica, "slave_repl_offset") >= written {
				return true
			}
		}
		return false
	}, bound, time.Millisecond, "the replica does not keep up")
	return from
}

func offset(admin *redis.Client, name string) (n int64) {
	text, err := admin.Info(context.Background(), "replication").Result()
	if _, rest, ok := strings.Cut(text, "\n"+name+":"); err == nil && ok {
		_, _ = fmt.Sscanf(rest, "%d", &n)
	}
	return n
}
