// Command storm makes one of the storms that mutants are judged by, and prints what its history shows as JSON.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"

	"github.com/leaseq/leaseq/chaos"
	"github.com/leaseq/leaseq/internal/mutation"
)

func main() {
	name := flag.String("storm", "rough", "which one")
	seed := flag.Uint64("seed", 1, "of its faults and its traffic")
	flag.Parse()
	finding, err := storm(context.Background(), *name, *seed)
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(finding)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// storm makes a storm, and writes its report to standard error.
func storm(ctx context.Context, name string, seed uint64) (*mutation.Finding, error) {
	o, ok := storms[name]
	if !ok {
		return nil, fmt.Errorf("no storm is named %q", name)
	}
	o.Queue, o.Seed = "storm-"+name, seed
	if o.Slack == 0 {
		o.Slack = slack
	}
	result, err := chaos.Run(ctx, &o)
	if err != nil {
		return nil, err
	}
	if err := result.WriteText(os.Stderr); err != nil {
		return nil, err
	}
	f := &mutation.Finding{Checks: map[string]int64{}, Problems: result.Problems, Silent: result.Silent()}
	for _, c := range result.Report.Checks {
		if c.Violations == 0 {
			continue
		}
		f.Checks[c.Name] = c.Violations
		for _, v := range c.Examples {
			fmt.Fprintf(os.Stderr, "%s: %s\n", c.Name, v.Text)
		}
	}
	if more := result.Duplicated - result.DuplicatesAllowed; more > 0 {
		f.Problems = append(f.Problems, fmt.Sprintf("%d more duplicates than faults explain", more))
	}
	f.Operations = result.Report.Totals.Attempts
	for _, c := range []string{"start", "settle acked", "settle retried", "settle released", "settle dead", "settle lost", "settle gone"} {
		f.Operations += result.Report.Cases[c]
	}
	return f, nil
}
