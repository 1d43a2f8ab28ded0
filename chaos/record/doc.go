// Package record writes down what a worker sees of its jobs, so that package chaos can judge a run afterwards. It needs
// the standard library and package reliable only.
//
//	rec, err := record.Open(filepath.Join(dir, "worker-1.jsonl"), &record.Options{Queue: "orders", Slots: 8})
//	if err != nil {
//		return err
//	}
//	defer rec.Close()
//	c, err := reliable.NewConsumer(q, mux, &reliable.ConsumerOptions{
//		Concurrency: 8,
//		Middleware:  []reliable.Middleware{rec.Middleware()}, // outermost, so that it sees what settles the job
//		Hooks:       rec.Hooks(nil),                          // or rec.Hooks(yours)
//	})
//
// A producer enqueues through [Recorder.Enqueue], and whoever cancels, redrives or purges jobs does so through the
// methods of those names: what is not written down cannot be told from a fault.
//
// # The file
//
// One file a process and queue, JSON lines, each written by one write to a file opened for appending: a process that is
// killed loses nothing that was written before, and leaves at most one torn line, its last. The first line is of kind
// open and holds the version of the format, [Version]. The fields are those of [Event]; those that are zero are left
// out. A job that is enqueued, run and acked takes about 500 bytes in five lines. Times are microseconds since the file
// was opened, by the monotonic clock: they cannot be compared with another process' times. The server's clock is known
// where an event holds a fence, a due time, or a clock reading of the server.
//
// An operation has a line before it is sent (call), and one after it was answered (answer); a settle has the
// handler's end before it, and a line settle after. What has no second line, or one that says unknown, may have
// happened or not. A second answer, from Resolve, outweighs the first.
//
// # What is not seen
//
// A claim is seen when its handler starts, or when its job is given back without a start; a process that is killed
// between the two has claimed jobs that its file does not name. A handler that settles its job by hand must say so with
// [Recorder.Settling] and [Recorder.Settled], since no hook is called for it. Bulk calls (RedriveNext, PurgeNext) answer
// no IDs, and so cannot be recorded: a run that is to be judged names the IDs. Whether a returned error was a retry, a
// burial or a release is known from the answer, not before.
package record
