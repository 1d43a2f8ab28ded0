package failover

import (
	"context"
	"strings"

	"github.com/redis/go-redis/v9"
)

// runID names the process of the server that a client is connected to; "": it answers nothing.
func runID(rdb redis.UniversalClient) string {
	text, err := rdb.Info(context.Background(), "server").Result()
	if err != nil {
		return ""
	}
	return runIDOf(text)
}

func runIDOf(info string) string {
	_, rest, _ := strings.Cut(info, "run_id:")
	id, _, _ := strings.Cut(rest, "\r\n")
	return id
}

// replicated reports whether a replica has all that the server with this run ID had written before the call. WAIT counts
// from the last write of its own connection, which need not be the one that enqueued: so a write goes before it, in one
// pipeline. And it must still be the server that the job was enqueued on: hence its name, before and after.
func replicated(rdb redis.UniversalClient, before string) bool {
	if before == "" {
		return false
	}
	ctx := context.Background()
	var info *redis.StringCmd
	var n *redis.Cmd
	_, err := rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.Incr(ctx, "marker")
		n = pipe.Do(ctx, "wait", 1, 200)
		info = pipe.Info(ctx, "server")
		return nil
	})
	if err != nil {
		return false
	}
	got, err := n.Int()
	return err == nil && got >= 1 && runIDOf(info.Val()) == before
}
