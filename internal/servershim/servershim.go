// Package servershim does to a redis-server of one's own what no command can: it moves its wall clock, cuts the power of
// its disk, and makes its syncs wait. The server is an unchanged program with a small library preloaded, which is
// compiled from C with the cc of the machine when it is needed. It goes with package redisproc:
//
//	shim, err := servershim.Build("")
//	…
//	defer shim.Close()
//	server, err := redisproc.Start(ctx, &redisproc.Options{AppendOnly: true, AppendFsync: "everysec", Env: shim.Env()})
//	…
//	err = server.Kill()
//	cut, err := shim.CutToSynced(server.Dir())
//	err = server.Restart(ctx)
//
// A Shim is for one server at a time, over all its restarts. It works on Linux with 64 bits, with programs that are linked
// to their C library dynamically; [State.Loads] tells whether a program has taken it. An environment variable is all that
// the server sees of it, so it also reaches programs that the server starts.
//
// # The wall clock
//
// gettimeofday, time and clock_gettime of CLOCK_REALTIME are off by what [Shim.Shift] says, from the next call on. The
// monotonic clock is not, nor are the times of files.
//
// # The power cut
//
// For each file that the server opens for writing the shim notes how long it was when an fsync or fdatasync of it began
// that then ended well: whatever was written by then is on the disk, and nothing more is. It knows a file by its inode,
// so through renames, and knows forked children, as that which rewrites the append-only file. [Shim.CutToSynced] cuts
// each file of a dead server to that length. A file that was never synced is left empty, under whatever name it has then.
// What was there before the shim is on the disk.
//
// That is the least that a disk may hold, where file systems keep their names in order. Not modelled are:
//
//   - more than the least: a kernel writes by itself what is older than about 30 s, and a part of what is younger;
//   - names that were not synced: files that were made, renamed and removed stay so, and a truncation counts as on the
//     disk at once. Journaling file systems bring names to the disk in their order, with the next sync at the latest;
//   - bytes that are overwritten in place, which Redis does not do;
//   - a disk that lies about its syncs;
//   - sync_file_range, which promises nothing about a power cut, and sync, syncfs and msync, which Redis does not call;
//   - what a child of the server goes on to write after the server was killed.
//
// # The stall
//
// While [Shim.StallSyncs] is on, each fsync and fdatasync that begins waits until it is off, and at most 30 s, and then
// does its work. What it is sure of then is what the file held when it began, not when it ended.
package servershim

import (
	"errors"
	"os"
	"time"
)

// ErrUnavailable is what [Build] returns where there can be no shim: the error's text says what is missing. Tests skip
// then.
var ErrUnavailable = errors.New("a redis-server cannot be given another clock and disk here")

// A Shim is the library and the file that steers it. Its methods may be called from several goroutines at once.
type Shim struct {
	library string
	control *os.File
	temp    string // the folder to remove, if it is ours
}

// State is what a shim has noted.
type State struct {
	// Loads is how many servers have loaded the library, restarts included. While it is 0 nothing that the shim is told
	// has any effect: the program is not linked dynamically, or to another C library than cc makes code for.
	Loads int64
	// Begun and Ended count the syncs of the server that runs, or ran last. They differ by those under way, or, when the
	// server was killed, by those that it did not finish.
	Begun, Ended int64
	// Waiting is how many syncs wait for a stall to end.
	Waiting int64
	// LastBegun is when the last sync began, by the machine's wall clock. Zero: there was none since the server's start.
	LastBegun time.Time
}
