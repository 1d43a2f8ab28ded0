package cases

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"

	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/internal/netfault"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/reliable"
)

// roundsConfig is what a process is told that starts and stops a Consumer over and over.
type roundsConfig struct {
	Server serverAt
	Queue  string
	Rounds int
	Seed   uint64
	Lag    time.Duration // of each direction
}

// roundsReport is what it has seen.
type roundsReport struct {
	Enqueued, Acked   int
	ClaimsStopped     int           // rounds whose context ended while a claim was on its way to the server or back
	JobsCaught        int           // of these, those in which it had claimed the job
	WorkedOff, PutBak int           // what became of such jobs: worked on within the drain, or released at once
	Silences          int           // calls that had no answer for a second: this process or the server stood still
	Longest           time.Duration // from a stop to Run's return
}

var _ = child("start-stop-rounds", func(config []byte) int {
	r := &rounds{}
	err := json.Unmarshal(config, &r.roundsConfig)
	if err == nil {
		err = r.run()
	}
	if err != nil {
		fmt.Println(err) // no report: the test shows it
		return 1
	}
	line, _ := json.Marshal(r.roundsReport)
	fmt.Println(string(line))
	return 0
})

// rounds is such a process. It does nothing else, so that whatever goroutine is left is the Consumer's, and whatever
// command comes through its proxy.
type rounds struct {
	roundsConfig
	roundsReport
	proxy  *netfault.Proxy
	behind *redis.Client // through the proxy
	direct *redis.Client
	queue  *reliable.Queue // direct
	keys   *keys.Partition
	rand   *rand.Rand
	open   int64 // sessions at the round's start: the producer's, and what silences have left, which is trimmed after an hour

	mu      sync.Mutex
	onClaim func() // called for each claim that the proxy sees
	stopped bool   // this round's context has ended
	since   time.Time
	caught  bool // the handler was called after that
	back    bool // the job was released
	silent  bool // a call had no answer for a second
	odd     []string
}

func (r *rounds) run() (err error) {
	if r.proxy, err = netfault.Listen(r.Server.Addr); err != nil {
		return err
	}
	defer r.proxy.Close()
	r.proxy.Delay(r.Lag)
	r.proxy.Decide(r.see)
	r.direct = r.Server.client(0)
	defer r.direct.Close()
	through := r.Server
	through.Addr = r.proxy.Addr()
	r.behind = through.client(0)
	defer r.behind.Close()
	r.rand = rand.New(rand.NewPCG(r.Seed, 1))
	if r.keys, err = keys.New(keys.DefaultPrefix, r.Queue, 0); err != nil {
		return err
	}
	if r.queue, err = reliable.New(r.direct, r.Queue, nil); err != nil {
		return err
	}
	defer r.queue.Close(context.Background())
	for i := range r.Rounds {
		if err := r.round(i); err != nil {
			return fmt.Errorf("round %d with seed %d: %w", i, r.Seed, err)
		}
	}
	return r.checkBooks()
}

// see is asked for each command that goes through the proxy.
func (r *rounds) see(cmd []string) netfault.Action {
	if call, ok := scriptIn(cmd); ok && call.is("claim") {
		r.mu.Lock()
		on := r.onClaim
		r.mu.Unlock()
		on()
	}
	return netfault.Pass
}

// round has one job, that which the last round has left or a new one, starts a Consumer, and stops it at a moment that
// falls anywhere: in every other round while its first claim is on the way, else from its start to some time after it
// has acked the job.
func (r *rounds) round(i int) error {
	ctx := context.Background()
	if r.Acked == r.Enqueued {
		if _, err := r.queue.Enqueue(ctx, reliable.Item{ID: fmt.Sprintf("job-%d", i), Kind: "round"}); err != nil {
			return err
		}
		r.Enqueued++
	}
	var err error
	if r.open, err = r.direct.HLen(ctx, r.keys.Key("sessions")).Result(); err != nil {
		return err
	}
	before := goleak.IgnoreCurrent()
	asked, stop := context.WithCancel(ctx)
	defer stop()
	end := func() {
		r.mu.Lock()
		r.stopped, r.since = true, time.Now()
		r.mu.Unlock()
		stop()
	}
	moment := time.Duration(r.rand.Int64N(int64(2 * r.Lag))) // the request arrives after one Lag, the answer after two
	if i%2 == 1 {
		moment = time.Duration(r.rand.Int64N(int64(20 * r.Lag)))
	}
	var once sync.Once
	r.mu.Lock()
	r.stopped, r.caught, r.back, r.silent, r.odd = false, false, false, false, nil
	r.onClaim = func() {
		if i%2 == 0 {
			once.Do(func() { r.ClaimsStopped++; time.AfterFunc(moment, end) })
		}
	}
	r.mu.Unlock()
	if i%2 == 1 {
		time.AfterFunc(moment, end)
	}
	if err := r.consume(asked); err != nil {
		return err
	}
	sent := r.proxy.Commands()
	then, err := r.contents()
	if err == nil {
		err = r.checkStopped(before)
	}
	if err != nil {
		return err
	}
	<-time.After(3 * r.Lag) // what was on its way has arrived
	if now := r.proxy.Commands(); now != sent {
		return fmt.Errorf("%d commands were sent after Run had returned", now-sent)
	}
	now, err := r.contents()
	if err != nil {
		return err
	}
	for key := range now {
		if now[key] != then[key] {
			return fmt.Errorf("%s was written after Run had returned: was %q, is %q", key, then[key], now[key])
		}
	}
	return nil
}

// contents is every key of the queue as Redis would save it, read in one step.
func (r *rounds) contents() (map[string]string, error) {
	ctx := context.Background()
	all := map[string]*redis.StringCmd{}
	_, err := r.direct.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		for _, name := range []string{"due", "processing", "dead", "done", "jobs", "leases", "counts", "errors", "fence",
			"sessions", "holders", "sweep", "wake", "policy", "stats"} {
			all[name] = pipe.Dump(ctx, r.keys.Key(name))
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, err
	}
	out := map[string]string{}
	for name, cmd := range all {
		out[name] = cmd.Val()
	}
	return out, nil
}

// consume runs a Consumer until asked ends, and notes what became of the job.
func (r *rounds) consume(asked context.Context) error {
	through, err := reliable.New(r.behind, r.Queue, nil)
	if err != nil {
		return err
	}
	log := &lineLog{}
	c, err := reliable.NewConsumer(through, reliable.HandlerFunc(func(context.Context, *reliable.Job) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.caught = r.stopped
		return nil
	}), &reliable.ConsumerOptions{Concurrency: 2, Logger: log.logger(), Hooks: &reliable.Hooks{
		OnDone: func(context.Context, reliable.Event) { r.Acked++ }, // one goroutine, which has ended when Run returns
		OnRelease: func(_ context.Context, e reliable.Event) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.back = true
			if !r.stopped {
				r.odd = append(r.odd, fmt.Sprintf("released before the stop: %v", e.Err))
			}
		},
		OnError: r.failed,
		OnRetry: func(_ context.Context, e reliable.Event) { r.note("the job was nacked") },
		OnLost:  func(_ context.Context, e reliable.Event) { r.note("the lease was lost") },
	}})
	if err != nil {
		return err
	}
	if err := c.Run(asked); err != nil {
		return err
	}
	<-asked.Done()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Longest = max(r.Longest, time.Since(r.since))
	r.silent = r.silent || strings.Contains(log.String(), "sessions were not closed")
	if len(r.odd) > 0 {
		return fmt.Errorf("%q", r.odd)
	}
	if r.back {
		r.PutBak++
	}
	if r.caught {
		r.WorkedOff++
	}
	if r.back || r.caught {
		r.JobsCaught++
	}
	return through.Close(context.Background())
}

// failed notes an error. Where the machine stands still for a second, a call is repeated on another connection: that must
// leave as little behind as anything else.
func (r *rounds) failed(_ context.Context, e reliable.Event) {
	if strings.HasSuffix(e.Err.Error(), "repeated: no answer for a while: asked again on another connection") {
		r.mu.Lock()
		r.Silences++
		r.silent = true
		r.mu.Unlock()
		return
	}
	r.note(fmt.Sprintf("an error: %v", e.Err))
}

func (r *rounds) note(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.odd = append(r.odd, what)
}

// checkStopped is called when Run has returned: nothing is leased, nothing is counted, no session and no goroutine is
// left.
func (r *rounds) checkStopped(before goleak.Option) error {
	ctx := context.Background()
	var sizes []*redis.IntCmd
	names := []string{"processing", "leases", "counts", "sessions"}
	_, err := r.direct.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		sizes = []*redis.IntCmd{
			pipe.ZCard(ctx, r.keys.Key(names[0])), pipe.HLen(ctx, r.keys.Key(names[1])),
			pipe.HLen(ctx, r.keys.Key(names[2])), pipe.HLen(ctx, r.keys.Key(names[3])),
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i, size := range sizes {
		allowed := int64(0)
		if names[i] == "sessions" {
			allowed = r.open
		}
		if size.Val() > allowed && (names[i] != "sessions" || !r.silent) {
			return fmt.Errorf("%d entries in %s after Run had returned", size.Val(), names[i])
		}
	}
	return goleak.Find(before,
		goleak.IgnoreAnyFunction("github.com/leaseq/leaseq/internal/netfault.(*link).serve"),
		goleak.IgnoreAnyFunction("github.com/leaseq/leaseq/internal/netfault.(*link).up"),
		goleak.IgnoreAnyFunction("github.com/leaseq/leaseq/internal/netfault.(*link).down"))
}

// checkBooks is the end: every job that was claimed was acked or released, and nothing else.
func (r *rounds) checkBooks() error {
	stats, err := r.direct.HGetAll(context.Background(), r.keys.Key("stats")).Result()
	if err != nil {
		return err
	}
	for _, counter := range []string{"nacked", "buried", "expired", "died", "refused", "refused_extends"} {
		if n := stats[counter]; n != "" && n != "0" {
			return fmt.Errorf("%s is %s", counter, n)
		}
	}
	acked := stats["acked"]
	if acked == "" {
		acked = "0" // on a slow machine every round can end before its job is started
	}
	if acked != strconv.Itoa(r.Acked) {
		return fmt.Errorf("acked is %s, and %d were told", acked, r.Acked)
	}
	return nil
}

// A Consumer is started against one job, behind 20 ms of latency, and stopped at any moment, over and over: mostly while
// a claim is on its way. When Run has returned nothing is leased, no attempt was counted, no goroutine is left, and
// nothing is written any more.
func TestAConsumerThatIsStoppedAtAnyMomentLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	redistest.NeedServer(t)
	const lag = 10 * time.Millisecond
	var all sync.WaitGroup
	for range 2 {
		l := newLane(t, nil)
		config := roundsConfig{Server: sharedAt(t), Queue: l.name, Rounds: shape(20, 500), Seed: rand.Uint64(), Lag: lag}
		p := startChild(t, "start-stop-rounds", config)
		all.Go(func() {
			var got roundsReport
			for line := range p.Lines {
				if err := json.Unmarshal([]byte(line), &got); err != nil {
					t.Errorf("the process said %q", line)
				}
			}
			if code := p.Wait(); code != 0 {
				t.Errorf("exit code %d; seed %d", code, config.Seed)
				return
			}
			assert.Equal(t, config.Rounds/2, got.ClaimsStopped, "rounds that were stopped while their first claim was under way")
			assert.NotZero(t, got.JobsCaught, "no such claim had taken a job: the case was not met")
			assert.Less(t, got.Longest, reliable.DefaultDrainTimeout/2, "from a stop to the end of Run")
			t.Logf("%+v", got)
		})
	}
	all.Wait()
}
