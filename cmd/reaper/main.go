// Command reaper looks after the queues of leaseq on a Redis server: as a sidecar that puts back the jobs of workers
// that are gone, and as a tool that shows how the queues are doing. `reaper --help` lists what it can do.
package main

import (
	"context"
	"os"

	"github.com/redis/go-redis/v9/logging"
)

func main() { os.Exit(process(os.Args[1:])) }

func process(args []string) (code int) {
	logging.Disable() // the Redis client's own log: what matters of it comes back as errors, and is told in our format
	ctx, stop := untilSignal(context.Background(), os.Exit)
	defer stop()
	return NewApp(nil).Main(ctx, args)
}
