package main

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/leaseq/leaseq/lease"
)

// completeBound is how long a shell waits for the names of queues at most.
const completeBound = time.Second

// completeQueues completes the first arguments of a command, at most most of them, with the names of the registry that
// are not among the arguments yet. Where there is no answer it completes nothing.
func completeQueues(a *App, most int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(context.Background(), completeBound)
		defer cancel()
		names := a.knownQueues(ctx, cmd)
		slices.Sort(names)
		names = slices.DeleteFunc(names, func(name string) bool { return slices.Contains(args, name) })
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// knownQueues reads the registry that the flags of a command, and the environment, name. What is wrong is told by the
// command itself, later.
func (a *App) knownQueues(ctx context.Context, cmd *cobra.Command) []string {
	if applyTwins(cmd, a.lookupEnv) != nil {
		return nil
	}
	var connection connectionFlags
	own := pflag.NewFlagSet("", pflag.ContinueOnError)
	connection.add(own)
	own.VisitAll(func(f *pflag.Flag) {
		if given := cmd.Flags().Lookup(f.Name); given != nil {
			_ = f.Value.Set(given.Value.String()) // of the same type
		}
	})
	endpoint, err := connection.parse()
	if err != nil {
		return nil
	}
	rdb := endpoint.open(true)
	defer rdb.Close()
	names, _ := lease.Queues(ctx, rdb, connection.prefix)
	return names
}
