package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/leaseq/leaseq/lease"
	"github.com/leaseq/leaseq/reliable"
)

const policyHelp = `The limits of a queue: how long leases are, how often a job is tried, how large it may be, how many may wait. Each deployment
publishes the limits of its options when it starts, and the newest one holds. What is set here is pinned: it holds until it is
unset, whatever deployments publish. Scripts follow at once, consumers within five seconds; no restart is needed.`

func newPolicyCommand(a *App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "policy", Short: "Show, pin and unpin the limits of a queue", Long: policyHelp,
		Example: `  reaper policy show orders
  reaper policy set orders max_length=100000 job_timeout=10m
  reaper policy unset orders max_length`,
	}
	cmd.AddCommand(newPolicyShowCommand(a), newPolicySetCommand(a), newPolicyUnsetCommand(a))
	return cmd
}

// policyCommand is one of the commands about a queue's limits.
type policyCommand struct {
	jobFlags
	policy lease.Policy
	names  []string
	all    bool
}

func newPolicyShowCommand(a *App) *cobra.Command {
	c := &policyCommand{jobFlags: jobFlags{app: a}}
	return c.command(&cobra.Command{
		Use: "show QUEUE", Short: "Show the limits that hold", Args: cobra.ExactArgs(1),
		Long: `Shows the limits that hold for a queue, and where each comes from: built in, published by a deployment, or pinned; of a pinned one
also what would hold without the pin. Deployments that are live and publish different limits are told: two services that
work on one queue with different options, or a deploy that is under way.

With --json the output is one object: {"queue", "published", "limits": [{"name", "value", "from", "deployed"}], "deployments":
[{"holder", "at", "limits"}], "differ"}; from is "built-in", "deployment" or "pinned". It only reads.`,
		Example: `  reaper policy show orders
  reaper policy show orders --json | jq -r '.limits[] | select(.from == "pinned") | .name'`,
	}, func(cmd *cobra.Command, args []string) error { return c.prepare(cmd, args[0], 0) }, c.show)
}

func newPolicySetCommand(a *App) *cobra.Command {
	c := &policyCommand{jobFlags: jobFlags{app: a}}
	cmd := c.command(&cobra.Command{
		Use: "set QUEUE LIMIT=VALUE ...", Short: "Pin limits", Args: cobra.MinimumNArgs(2),
		Long: `Pins limits: they hold until they are unset, whatever deployments publish. All are set in one step, or none. It may be run again. The queue must have been used before.

` + limitsHelp() + `
A limit that is lowered refuses what comes from now on, and leaves alone what is there. With --json the output is that of 'show'.`,
		Example: `  reaper policy set orders max_length=100000
  reaper policy set orders max_retries=0 backoff_base=10s backoff_cap=1h
  reaper policy set orders concurrency=5 rate=100/1s
  reaper policy set orders max_length=0             # producers are refused, workers go on`,
	}, c.checkSet, c.set)
	cmd.ValidArgsFunction = c.completeLimits("=")
	return cmd
}

func newPolicyUnsetCommand(a *App) *cobra.Command {
	c := &policyCommand{jobFlags: jobFlags{app: a}}
	cmd := c.command(&cobra.Command{
		Use: "unset QUEUE {LIMIT ... | --all}", Short: "Unpin limits", Args: cobra.MinimumNArgs(1),
		Long: `Unpins limits: what deployments published last holds again at once, or what is built in where they publish nothing. One that is
not pinned is left as it is. With --json the output is that of 'show'.`,
		Example: `  reaper policy unset orders max_length
  reaper policy unset orders --all`,
	}, c.checkUnset, c.unset)
	cmd.Flags().BoolVar(&c.all, "all", false, "unpin all limits")
	cmd.ValidArgsFunction = c.completeLimits("")
	return cmd
}

// limitsHelp lists the limits and what each may be.
func limitsHelp() string {
	var b strings.Builder
	for _, name := range lease.LimitNames() {
		fmt.Fprintf(&b, "  %-22s %s\n", name, lease.LimitWants(name))
	}
	return b.String()
}

// completeLimits completes the queue's name first, and then limits that were not named yet.
func (c *policyCommand) completeLimits(suffix string) cobra.CompletionFunc {
	queues := completeQueues(c.app, 1)
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return queues(cmd, args, typed)
		}
		directive := cobra.ShellCompDirectiveNoFileComp
		if suffix != "" {
			directive |= cobra.ShellCompDirectiveNoSpace
		}
		var names []cobra.Completion
		for _, name := range lease.LimitNames() {
			given := func(arg string) bool { return strings.TrimSuffix(arg, "=") == name || strings.HasPrefix(arg, name+"=") }
			if strings.HasPrefix(name, typed) && !slices.ContainsFunc(args[1:], given) {
				names = append(names, name+suffix)
			}
		}
		return names, directive
	}
}

func (c *policyCommand) checkSet(cmd *cobra.Command, args []string) error {
	var errs []error
	given := map[string]bool{}
	for _, arg := range args[1:] {
		name, value, ok := strings.Cut(arg, "=")
		switch {
		case !ok:
			errs = append(errs, fmt.Errorf("%.64q: want LIMIT=VALUE, as max_retries=5", arg))
			continue
		case given[name]:
			errs = append(errs, fmt.Errorf("%.64s is given twice: want it once", name))
		}
		given[name] = true
		if name == "rate" && strings.Contains(value, "/") {
			given["rate_interval"] = true
		}
		errs = append(errs, c.policy.Set(name, value))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := c.policy.CheckPin(); err != nil {
		return err
	}
	return c.prepare(cmd, args[0], 0)
}

func (c *policyCommand) checkUnset(cmd *cobra.Command, args []string) error {
	c.names = args[1:]
	switch {
	case c.all && len(c.names) > 0:
		return errors.New("want names of limits, or --all, and not both")
	case !c.all && len(c.names) == 0:
		return fmt.Errorf("nothing is named: want one of %s, or --all", strings.Join(lease.LimitNames(), ", "))
	}
	for _, name := range c.names {
		if lease.LimitWants(name) == "" {
			return fmt.Errorf("%.64q is no limit of a queue: want one of %s", name, strings.Join(lease.LimitNames(), ", "))
		}
	}
	return c.prepare(cmd, args[0], 0)
}

func (c *policyCommand) set(ctx context.Context) error {
	if err := c.known(ctx); err != nil {
		return err
	}
	err := c.call(ctx, func(ctx context.Context) error {
		_, err := c.q.SetPolicy(ctx, c.policy)
		return err
	})
	if err != nil {
		return err
	}
	return c.show(ctx)
}

func (c *policyCommand) unset(ctx context.Context) error {
	if err := c.known(ctx); err != nil {
		return err
	}
	changed := false
	err := c.call(ctx, func(ctx context.Context) (err error) {
		changed, err = c.q.UnsetPolicy(ctx, c.names...)
		return err
	})
	if err != nil {
		return err
	}
	if !changed && !c.json {
		fmt.Fprintln(c.app.err, "reaper: none of them was pinned: nothing has changed")
	}
	return c.show(ctx)
}

func (c *policyCommand) show(ctx context.Context) error {
	var state reliable.PolicyState
	err := c.call(ctx, func(ctx context.Context) (err error) {
		state, err = c.q.Policy(ctx)
		return err
	})
	if err != nil {
		return err
	}
	if !state.Published {
		if err := c.known(ctx); err != nil {
			return err
		}
	}
	if c.json {
		return writeJSONLine(c.app.out, policyJSONOf(c.queue, &state))
	}
	return writePolicy(c.app.out, c.queue, &state)
}
