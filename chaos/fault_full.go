package chaos

import (
	"context"
	"strings"
	"time"

	"github.com/leaseq/leaseq/chaos/record"
)

// fullFaults are those of a place that has no room: row 12.
func fullFaults() []Fault {
	return []Fault{{
		Name: "disk-full", Row: 12, Lane: Server, Available: needDisk,
		What:   "the server's disk is full: it refuses all writes (MISCONF) until there is room again",
		Leases: [2]float64{0.4, 1.2}, Inject: fillDisk,
	}}
}

// roomBound is how long the server may take to find that its disk is full, or has room again: it looks once a second.
const roomBound = 15 * time.Second

// fillDisk makes the disk as small as its files, and roomy again.
func fillDisk(ctx context.Context, in *Injection) error {
	disk, after := in.storm.gear.disk, context.WithoutCancel(ctx)
	in.Begin("", 0, record.Outage, record.Lossy)
	if err := disk.fill(); err != nil {
		return err
	}
	over := time.Now().Add(in.For)
	refused := in.Until(ctx, roomBound, func() bool {
		err := in.Admin().Set(ctx, in.probe(), strings.Repeat("x", 8192), time.Second).Err()
		return err != nil && strings.HasPrefix(err.Error(), "MISCONF")
	})
	if refused {
		in.Bites()
		in.Wait(ctx, time.Until(over))
	}
	if err := disk.empty(); err != nil {
		return err
	}
	var err error
	if !in.Until(after, roomBound, func() bool {
		err = in.Admin().Set(after, in.probe(), "x", time.Second).Err()
		return err == nil
	}) {
		return err
	}
	in.End()
	return in.rewrite(after) // as docs/protocol.md (Limits) tells operators: a hole may be left in the file
}
