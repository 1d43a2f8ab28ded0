package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/leaseq/leaseq/chaos/record"
)

// A crash is one way in which redis-server ends without notice, and comes back.
type crash struct {
	fsync string
	power bool // the machine has lost its power: what was not synced is gone
	torn  bool // the last script stands half in the file
}

// How far back a crash can reach. With everysec a sync begins every second, and until it has ended nothing since the one
// before is on the disk; while one is under way the server answers first and writes later, for 2 s at most.
const (
	unsynced  = 2 * time.Second
	unwritten = unsynced + 250*time.Millisecond
)

// crashFaults are rows 9 to 11.
func crashFaults() []Fault {
	back := [2]time.Duration{200 * time.Millisecond, 800 * time.Millisecond}
	fault := func(name string, row int, available func(*Site) error, what string, c crash) Fault {
		return Fault{
			Name: name, Row: row, Lane: Server, Available: available, What: what, For: back,
			Inject: func(ctx context.Context, in *Injection) error { return in.crash(ctx, c) },
		}
	}
	return []Fault{
		fault("redis-kill-always", 9, needOwnServer, "redis-server gets SIGKILL under appendfsync always, and is started again: nothing is lost", crash{fsync: "always"}),
		fault("redis-kill-everysec", 9, needOwnServer, "the same under everysec: nothing is lost either, unless a sync was under way", crash{fsync: fsync}),
		fault("redis-kill-no", 9, needOwnServer, "the same under appendfsync no: nothing is lost, since the kernel lives on", crash{fsync: "no"}),
		fault("power-cut-always", 10, needShim, "the server's machine loses its power under appendfsync always: nothing is lost", crash{fsync: "always", power: true}),
		fault("power-cut-everysec", 10, needShim, "the same under everysec: the last 2 s at most are forgotten", crash{fsync: fsync, power: true}),
		fault("aof-torn", 11, needOwnServer, "redis-server gets SIGKILL, and its append-only file ends in the middle of the last script", crash{fsync: fsync, torn: true}),
	}
}

func (in *Injection) crash(ctx context.Context, c crash) error {
	own, after := in.storm.server.own, context.WithoutCancel(ctx)
	if err := in.syncBy(ctx, c.fsync); err != nil {
		return err
	}
	in.Wait(ctx, in.For) // under this setting
	quiet := int64(-1)   // how many syncs there had been when the last one was over for a while
	if c.fsync == fsync && in.storm.gear.shim != nil && in.Until(ctx, 5*time.Second, in.syncsInTime) {
		if quiet = in.syncs(); !c.power && !c.torn {
			in.Wait(ctx, flushed)
		}
	}
	if ctx.Err() != nil || c.power && c.fsync == fsync && !in.syncsInTime() {
		return in.syncBy(after, fsync) // a disk that stands still promises nothing
	}
	in.Begin("", 0, record.Outage, record.Lossy)
	if err := own.Kill(); err != nil {
		return err
	}
	ended := time.Now()
	bites, err := in.damage(c, ended, quiet >= 0 && quiet == in.syncs())
	return errors.Join(err, in.back(after, c, bites))
}

// syncBy sets appendfsync. When it returns what was written before is on the disk, if that is always.
func (in *Injection) syncBy(ctx context.Context, setting string) error {
	err := in.Admin().ConfigSet(ctx, "appendfsync", setting).Err()
	if err == nil {
		err = in.Admin().Set(ctx, in.probe(), "x", time.Second).Err()
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// probe is a key that is no queue's.
func (in *Injection) probe() string { return in.Queue() + ":probe" }

// syncsInTime reports whether no sync is under way, and the last one is not long ago.
func (in *Injection) syncsInTime() bool {
	s, err := in.storm.gear.shim.State()
	return err == nil && s.Begun == s.Ended && time.Since(s.LastBegun) < 600*time.Millisecond
}

// damage does to the files of the dead server what the crash does, and says from when on answers may be forgotten. It
// reports whether the crash has done all that it is named for. written says that no sync can have kept the server from
// writing what it had answered.
func (in *Injection) damage(c crash, ended time.Time, written bool) (bites bool, err error) {
	switch {
	case c.power:
		if c.fsync == fsync {
			err = in.beginAt(ended.Add(-unsynced), record.Loses)
		}
		_, cut := in.storm.gear.shim.CutToSynced(in.storm.server.own.Dir())
		return true, errors.Join(err, cut)
	case c.torn:
		if err := in.beginAt(ended.Add(-unwritten), record.Loses); err != nil {
			return false, err
		}
		return tear(in.storm.server.own.Dir(), ended.Add(-unwritten/2), in.Rand.Float64())
	case c.fsync == fsync && !written:
		return true, in.beginAt(ended.Add(-unwritten), record.Loses)
	}
	return true, nil
}

// flushed is how long after a sync the server may take to write what it has answered meanwhile: it does so at the next
// command, or by a timer of 100 ms.
const flushed = 250 * time.Millisecond

// syncs is how many syncs there have been, or -1 while one is under way.
func (in *Injection) syncs() int64 {
	if in.storm.gear.noShim != nil {
		return -1
	}
	s, err := in.storm.gear.shim.State()
	if err != nil || s.Begun != s.Ended {
		return -1
	}
	return s.Begun
}

// back starts the server again, and does what its operator is told to do where the file was torn: have it written anew.
func (in *Injection) back(ctx context.Context, c crash, bites bool) error {
	own := in.storm.server.own
	log := filepath.Join(own.Dir(), "redis-server.log")
	before, err := os.ReadFile(log)
	if err != nil {
		return err
	}
	if err := own.Restart(ctx); err != nil {
		return err
	}
	text, err := os.ReadFile(log)
	if err != nil {
		return err
	}
	truncated := len(text) > len(before) && containsText(text[len(before):], "Truncating the AOF")
	if bites && (truncated || !c.torn) {
		in.Bites()
	}
	if !truncated {
		return nil
	}
	return in.rewrite(ctx)
}

// rewriteBound is how long the server may take to write its file anew.
const rewriteBound = 30 * time.Second

// rewrite has the append-only file written anew, and waits for it.
func (in *Injection) rewrite(ctx context.Context) error {
	var err error
	started := in.Until(ctx, rewriteBound, func() bool {
		err = in.Admin().BgRewriteAOF(ctx).Err() // one may be under way
		return err == nil
	})
	if !started {
		return fmt.Errorf("BGREWRITEAOF: %w", err)
	}
	var info string
	done := in.Until(ctx, rewriteBound, func() bool {
		info, err = in.Admin().Info(ctx, "persistence").Result()
		return err == nil && containsText([]byte(info), "aof_rewrite_in_progress:0") && containsText([]byte(info), "aof_rewrite_scheduled:0")
	})
	if !done || !containsText([]byte(info), "aof_last_bgrewrite_status:ok") {
		return fmt.Errorf("the append-only file was not written anew (%w): %s", err, info)
	}
	return nil
}
