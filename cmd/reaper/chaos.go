package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/leaseq/leaseq/chaos"
	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/reliable"
)

// chaosCommand is `reaper chaos`.
type chaosCommand struct {
	app *App

	redis, prefix              string
	duration, lease            time.Duration
	seed                       uint64
	faults                     []string
	workers, concurrency, rate int
	profile                    string
	schedule, saveTo, report   string
	dir, kind, payload, other  string
	json, strict               bool

	list    bool // only the faults
	program []string
	options chaos.Options
}

// listWord is what --faults is given to tell the faults.
const listWord = "list"

func newChaosCommand(a *App) *cobra.Command {
	c := &chaosCommand{app: a}
	cmd := &cobra.Command{
		Use:               "chaos [flags] [-- WORKER [ARGUMENT ...]]",
		Short:             "Storm a queue with faults, and check that nothing is lost",
		Long:              chaosHelp,
		Example:           chaosExample,
		Args:              cobra.ArbitraryArgs, // prepare looks
		PreRunE:           func(cmd *cobra.Command, args []string) error { return c.prepare(args, cmd.ArgsLenAtDash()) },
		RunE:              func(cmd *cobra.Command, _ []string) error { return c.run(cmd.Context()) },
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	c.addFlags(cmd)
	return cmd
}

func (c *chaosCommand) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&c.redis, "redis", "", "`URL` of one server to use, as redis://127.0.0.1:6379/9; default: a redis-server of the run's own, from PATH")
	flags.StringVar(&c.prefix, "prefix", keys.DefaultPrefix, "`prefix` of the queue's keys")
	flags.DurationVar(&c.duration, "duration", 0, "how long jobs and faults come, at least 8 leases and 2s; default 30s, or that of --schedule")
	flags.Uint64Var(&c.seed, "seed", 0, "`number` that makes the schedule and the traffic; default: one by chance, which is told, or that of --schedule")
	flags.StringSliceVar(&c.faults, "faults", nil, "`names` of the faults that may come, with commas between; 'list' tells them and ends; default: all")
	flags.DurationVar(&c.lease, "lease", 2*time.Second, "lease of the queue, 200ms to 10s")
	flags.IntVar(&c.workers, "workers", 4, "`processes` that work at a time, 1 to 64")
	flags.IntVar(&c.concurrency, "concurrency", 16, "`jobs` that a worker works on at a time, 1 to 1000")
	flags.IntVar(&c.rate, "rate", 200, "`jobs` that are enqueued in a second on average, 1 to 100000; fewer come where the workers do not keep up")
	flags.StringVar(&c.profile, "profile", chaos.Profiles()[0], "`name` of how jobs come: "+strings.Join(chaos.Profiles(), ", "))
	flags.StringVar(&c.schedule, "schedule", "", "`file` with a schedule to be played again, as --save-schedule has made it")
	flags.StringVar(&c.saveTo, "save-schedule", "", "`file` that the schedule is written to, as JSON")
	flags.StringVar(&c.report, "report", "", "`file` that a report with plots is written to, as one HTML page")
	flags.StringVar(&c.dir, "dir", "", "`folder` that keeps the histories, empty or not there; default: one in the temporary folder, which stays where something was found")
	flags.StringVar(&c.kind, "kind", "", "with a worker of yours: the `kind` of its jobs")
	flags.StringVar(&c.payload, "payload", `{"n":{n}}`, "with a worker of yours: the `text` that is a job's payload, in which {n} stands for the job's number")
	flags.StringVar(&c.other, "other-version", "", "`command` of a worker that is made of another version of leaseq, with blanks between its parts, for the fault two-versions")
	flags.BoolVar(&c.json, "json", false, "print one JSON object on standard output")
	flags.BoolVar(&c.strict, "strict", false, "fail as well if a fault never had an effect, or an interesting case never happened")
	_ = cmd.RegisterFlagCompletionFunc("profile", cobra.FixedCompletions(chaos.Profiles(), cobra.ShellCompDirectiveNoFileComp)) // the flag is there
	_ = cmd.RegisterFlagCompletionFunc("faults", cobra.FixedCompletions(append(faultNames(), listWord), cobra.ShellCompDirectiveNoFileComp))
}

func faultNames() []string {
	var names []string
	for _, f := range chaos.AllFaults() {
		names = append(names, f.Name)
	}
	return names
}

// prepare checks flags and arguments. In a worker's process, which has the same, it looks at no file.
func (c *chaosCommand) prepare(args []string, dash int) error {
	if dash > 0 || dash < 0 && len(args) > 0 {
		return fmt.Errorf("%q: want a worker's command line behind --, and nothing else", args[0])
	}
	if c.program = args; dash == 0 && len(args) == 0 {
		return errors.New("behind -- there is nothing: want a worker's command line")
	}
	if c.redis != "" {
		if _, err := redis.ParseURL(c.redis); err != nil {
			return errNotOneServer
		}
	}
	c.options = chaos.Options{
		URL: c.redis, Prefix: c.prefix, Duration: c.duration, Seed: c.seed, Lease: c.lease,
		Workers: c.workers, Concurrency: c.concurrency, Rate: c.rate, Profile: c.profile, Dir: c.dir,
		OtherVersion: strings.Fields(c.other),
	}
	errs := []error{keys.ValidateName("--prefix", c.prefix), c.chooseFaults(), c.useProgram(), c.checkZeros(), c.checkDir()}
	if !chaos.Child() {
		errs = append(errs, c.readSchedule(), canBeWritten("--save-schedule", c.saveTo), canBeWritten("--report", c.report))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if c.options.Seed == 0 && c.options.Schedule == nil {
		c.options.Seed = rand.Uint64N(1<<53-1) + 1 // JSON readers keep so much
	}
	return asFlags(c.options.Check())
}

var errNotOneServer = errors.New("--redis is no URL of a single server: want it like redis://user:password@127.0.0.1:6379/0, with " +
	"special characters in a password percent-encoded; chaos knows neither Sentinel nor Cluster")

// longestLease is with which a run ends 15 s after its duration at the latest: a handler that hangs may keep the last job
// for half a lease longer than the run's end.
const longestLease = 10 * time.Second

// checkZeros refuses what would mean the default further down, and leases that are too long.
func (c *chaosCommand) checkZeros() error {
	var errs []error
	for _, f := range []struct {
		name  string
		value int64
		want  string
	}{
		{"workers", int64(c.workers), "1 to 64"}, {"concurrency", int64(c.concurrency), "1 to 1000"}, {"rate", int64(c.rate), "1 to 100000"},
		{"lease", int64(c.lease), "200ms to 10s"},
	} {
		if f.value == 0 {
			errs = append(errs, fmt.Errorf("--%s 0: want %s", f.name, f.want))
		}
	}
	if c.lease > longestLease {
		errs = append(errs, fmt.Errorf("--lease %v: want 200ms to 10s: what a longer one holds at the end could keep the run from ending within 15s of --duration", c.lease))
	}
	if c.profile == "" {
		errs = append(errs, errors.New("--profile is empty: want one of "+strings.Join(chaos.Profiles(), ", ")))
	}
	return errors.Join(errs...)
}

func (c *chaosCommand) chooseFaults() (err error) {
	if c.list = slices.Contains(c.faults, listWord); c.list && len(c.faults) > 1 {
		return fmt.Errorf("--faults %s: 'list' stands alone", strings.Join(c.faults, ","))
	}
	if len(c.faults) > 0 && !c.list {
		c.options.Faults, err = chaos.FaultsNamed(c.faults...)
	}
	return err
}

// useProgram takes a worker of the user's, and what its jobs are.
func (c *chaosCommand) useProgram() error {
	if len(c.program) == 0 {
		if c.kind != "" {
			return errors.New("--kind is for a worker of yours: name its command line behind --")
		}
		return nil
	}
	if c.kind == "" {
		return errors.New("--kind is missing: it tells your worker which handler the jobs are for")
	}
	c.options.Command = c.program
	c.options.Codec = plainText{}
	c.options.Job = func(i int) (reliable.Kinder, *reliable.EnqueueOptions) {
		return textJob{kind: c.kind, payload: strings.ReplaceAll(c.payload, "{n}", fmt.Sprint(i))}, nil
	}
	return nil
}

// checkDir names a folder, which Run makes. What was there before is none of it.
func (c *chaosCommand) checkDir() error {
	if c.dir == "" {
		c.options.Dir = filepath.Join(os.TempDir(), "leaseq-chaos-"+reliable.NewID())
		return nil
	}
	if chaos.Child() {
		return nil
	}
	entries, err := os.ReadDir(c.dir)
	switch {
	case err != nil && !os.IsNotExist(err):
		return fmt.Errorf("--dir: %w", err)
	case len(entries) > 0:
		return fmt.Errorf("--dir %s is not empty: want a new or an empty folder", c.dir)
	}
	return nil
}

func (c *chaosCommand) readSchedule() (err error) {
	if c.schedule == "" {
		return nil
	}
	if c.options.Schedule, err = chaos.ReadSchedule(c.schedule); err != nil {
		return fmt.Errorf("--schedule: %w", err)
	}
	return nil
}

// canBeWritten looks whether a file's folder is there, before a run that may take hours.
func canBeWritten(flag, file string) error {
	if file == "" {
		return nil
	}
	if info, err := os.Stat(filepath.Dir(file)); err != nil || !info.IsDir() {
		return fmt.Errorf("%s %s: its folder is not there", flag, file)
	}
	if info, err := os.Stat(file); err == nil && info.IsDir() {
		return fmt.Errorf("%s %s: that is a folder, want a file", flag, file)
	}
	return nil
}

// asFlags names flags where the library names fields of its options.
func asFlags(err error) error {
	if err == nil {
		return nil
	}
	text := strings.TrimPrefix(err.Error(), "chaos: ")
	for _, name := range []string{"Duration", "Lease", "Workers", "Concurrency", "Rate", "Profile", "Seed"} {
		text = strings.ReplaceAll(text, name+" is", "--"+strings.ToLower(name)+" is")
	}
	text = strings.ReplaceAll(text, "the Schedule's", "that of --schedule")
	text = strings.ReplaceAll(text, "leave it 0", "leave it out")
	return errors.New(text)
}

// A textJob is a job of a worker of the user's.
type textJob struct{ kind, payload string }

// Kind is what --kind says.
func (j textJob) Kind() string { return j.kind }

// plainText is the codec of textJobs, which are only enqueued.
type plainText struct{}

// Name is for errors.
func (plainText) Name() string { return "text" }

// Marshal takes the payload as it is.
func (plainText) Marshal(v any) ([]byte, error) {
	if j, ok := v.(textJob); ok {
		return []byte(j.payload), nil
	}
	return nil, fmt.Errorf("%T is no text", v)
}

// Unmarshal is not needed.
func (plainText) Unmarshal([]byte, any) error { return errors.New("texts are only enqueued") }

func (c *chaosCommand) run(ctx context.Context) error {
	if c.list && !chaos.Child() {
		return c.tellFaults(ctx)
	}
	live := newLive(c)
	c.options.Progress = live.show
	outcome, err := chaos.Run(ctx, &c.options) // a worker's process does not return from it
	live.end()
	if err != nil {
		return c.noOutcome(ctx, err, live.begun)
	}
	return c.tell(outcome)
}
