package chaos

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/leaseq/leaseq/chaos/record"
)

func equalFold(a, b string) bool { return strings.EqualFold(a, b) }

// serverFaults are those of Redis itself: rows 6, 9 to 14, 20 to 22 and 27.
func serverFaults() []Fault {
	return []Fault{
		{
			Name: "server-stop", Row: 6, Lane: Server, Available: needOwnServer,
			What: "the server stands still (SIGSTOP) for longer than a client waits for an answer; what was sent meanwhile runs when it goes on",
			For:  [2]time.Duration{3200 * time.Millisecond, 4 * time.Second}, Inject: stopServer,
		},
		{
			Name: "script-flush", Row: 20, Lane: Server,
			What:   "SCRIPT FLUSH, again and again",
			Leases: [2]float64{0.2, 0.6}, Inject: flushScripts,
		},
		{
			Name: "memory-full", Row: 13, Lane: Server, Available: needOwnServer,
			What:   "maxmemory is reached: enqueues are refused, all else goes on",
			Leases: [2]float64{0.5, 1.2}, Inject: fillMemory,
		},
	}
}

func stopServer(ctx context.Context, in *Injection) error {
	in.Begin("", 0, record.Outage, record.Lossy)
	own := in.storm.server.own
	if err := own.Freeze(); err != nil {
		return err
	}
	in.Bites()
	in.Wait(ctx, in.For)
	return own.Thaw()
}

func flushScripts(ctx context.Context, in *Injection) error {
	over := time.Now().Add(in.For)
	in.Begin("", 0)
	for time.Now().Before(over) && ctx.Err() == nil {
		if err := in.Admin().ScriptFlush(ctx).Err(); err != nil && ctx.Err() == nil {
			return err
		}
		in.Bites()
		in.Wait(ctx, 20*time.Millisecond)
	}
	return nil
}

// fillMemory lowers maxmemory to less than is in use.
func fillMemory(ctx context.Context, in *Injection) error {
	after := context.WithoutCancel(ctx)
	before, err := in.Admin().ConfigGet(ctx, "maxmemory").Result()
	if err != nil {
		return err
	}
	in.Begin("", 0)
	if err := in.Admin().ConfigSet(ctx, "maxmemory", "1mb").Err(); err != nil {
		return err
	}
	probe := fmt.Sprintf("%s:probe", in.Queue())
	if err := in.Admin().Set(ctx, probe, "x", time.Second).Err(); err != nil && strings.HasPrefix(err.Error(), "OOM") {
		in.Bites()
	}
	in.Wait(ctx, in.For)
	return in.Admin().ConfigSet(after, "maxmemory", before["maxmemory"]).Err()
}
