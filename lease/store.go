package lease

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/internal/script"
)

// Bounds of one call.
const (
	DefaultBatch = 256      // items
	MaxBatch     = 1000     // items; more are refused
	MaxBytes     = 4 << 20  // bytes of records in one enqueue or claim; one job may exceed it
	maxReason    = 512      // bytes of a failure's reason
	maxStack     = 4 << 10  // bytes of a kept stack
	MaxResult    = 64 << 10 // bytes of a finished job's result
)

// DefaultLease is the lease of a queue that publishes none.
const DefaultLease = 15 * time.Second

// StoreOptions are the optional settings of a Store; nil is valid.
type StoreOptions struct {
	Prefix    string // of all keys; default "leaseq"
	Partition int    // default 0
	Holder    string // readable name of this process, 1–64 bytes; default <host>/<pid>
	Stub      []byte // what stands in for a record that is missing; default one zero byte

	// Link is what stores of one client can share, as those of many queues in one process. Default: one of its own.
	Link *Link

	// OnRepeat is told of each try of a numbered call (Enqueue, Claim, Settle, Exchange …) that had no answer, or was not
	// run, and is repeated; by several goroutines at once. It must not block.
	OnRepeat func(op string, err error)
}

// A Link is a Redis client with what stores need beside it: up to eight connections of their own, dialled when they are
// first needed and closed after ten idle seconds, so that heartbeats wait for no other work and a call into a dead
// connection is repeated on a fresh one; and what is known of whether the server can be reached, so that an outage is not
// dialled by every loop for itself. Close it after the stores.
type Link = script.Link

// NewLink does no I/O.
func NewLink(rdb redis.UniversalClient) *Link { return script.NewLink(rdb) }

// A Store speaks the protocol over one partition of a queue. It is safe for concurrent use. All its methods work on
// batches and answer per item; what is a value in the protocol (lost, duplicate …) is an error in the item's result,
// and the method's own error says that the call as a whole failed: an [*UnknownError] where it may have run, else it
// did nothing.
type Store struct {
	rdb      redis.UniversalClient
	keys     *keys.Partition
	runner   *script.Runner
	sessions *script.Sessions
	stub     []byte
	holder   string
	left     leavings

	registers atomic.Int64 // tries of Register
}

// NewStore checks its arguments and does no I/O. rdb stays the caller's.
func NewStore(rdb redis.UniversalClient, queue string, o *StoreOptions) (*Store, error) {
	var opts StoreOptions
	if o != nil {
		opts = *o
	}
	if opts.Prefix == "" {
		opts.Prefix = keys.DefaultPrefix
	}
	if opts.Holder == "" {
		opts.Holder = DefaultHolder()
	}
	if opts.Stub == nil {
		opts.Stub = []byte{0}
	}
	var errs []error
	errs = append(errs, ValidateClient(rdb))
	partition, err := keys.New(opts.Prefix, queue, opts.Partition)
	errs = append(errs, err, ValidateHolder(opts.Holder))
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	runner := script.NewRunner(rdb, partition)
	if opts.Link != nil {
		runner = script.NewRunnerOn(opts.Link, partition)
	}
	sessions := script.NewSessions(runner, opts.Holder)
	sessions.OnRepeat = opts.OnRepeat
	return &Store{rdb: rdb, keys: partition, runner: runner, stub: opts.Stub, holder: opts.Holder, sessions: sessions}, nil
}

// ValidateClient reports whether a client is one to work with: not nil, and, of the kinds that tell, with a ReadTimeout.
func ValidateClient(rdb redis.UniversalClient) error { return script.ValidateClient(rdb) }

// DefaultHolder is <host>/<pid>, cut to 64 bytes.
func DefaultHolder() string { return script.DefaultHolder() }

// ValidateHolder reports whether a readable name of a process is 1–64 bytes of valid UTF-8 without control characters.
func ValidateHolder(holder string) error { return script.ValidateHolder(holder) }

// Close waits for calls that are still to have their outcome, until ctx ends, and closes the sessions in Redis. A try
// that is on the wire when ctx ends, or that its caller has left, is waited for as long as the client itself waits for it
// (its ReadTimeout): nothing of it comes after Close. Jobs that are held stay leased until their leases run out. Afterwards
// what changes jobs returns ErrClosed: Enqueue, Claim, Settle, Exchange, Cancel, Redrive, Purge, Reschedule, Edit and their like. What is safe to run twice
// (Extend, Expire, Publish, Wake) and what only reads still works; when its ctx ends, it returns once its try has ended.
func (s *Store) Close(ctx context.Context) error {
	s.left.close()
	err := s.sessions.Close(ctx)
	s.left.await()
	return err
}

// Queue returns the queue's name.
func (s *Store) Queue() string { return s.keys.Queue() }

// Client returns the Redis client that the store was made with.
func (s *Store) Client() redis.UniversalClient { return s.rdb }

// Register writes the queue's name into the registry of queues, by a plain SADD. One try, on connections of the Store's
// own and on the client's in turns: it is safe to call again.
func (s *Store) Register(ctx context.Context) error {
	aside := s.registers.Add(1)%2 == 1
	err := s.runner.Link().Do(ctx, aside, "sadd", keys.Registry(s.keys.Prefix()), s.keys.Queue()).Err()
	if err != nil {
		return fmt.Errorf("register queue %s: %w", s.keys.Queue(), script.Typed(err))
	}
	return nil
}

// Queues lists the names in the registry under a prefix, in no order. Names that break the rule for names, which can
// only be there by somebody else's hand, are left out.
func Queues(ctx context.Context, rdb redis.UniversalClient, prefix string) ([]string, error) {
	all, err := rdb.SMembers(ctx, keys.Registry(prefix)).Result()
	if err != nil {
		return nil, err
	}
	return validNames(all), nil
}

// QueuesOn is Queues as one try, on the client's connections or, aside, on the link's own: for loops that repeat it.
func QueuesOn(ctx context.Context, link *Link, aside bool, prefix string) ([]string, error) {
	all, err := link.Do(ctx, aside, "smembers", keys.Registry(prefix)).StringSlice()
	if err != nil {
		return nil, script.Typed(err)
	}
	return validNames(all), nil
}

func validNames(all []string) []string {
	var valid []string
	for _, name := range all {
		if keys.ValidateName("queue name", name) == nil {
			valid = append(valid, name)
		}
	}
	return valid
}

// numbered runs one numbered call and returns its stored answer.
func (s *Store) numbered(ctx context.Context, op string, sc *script.Script, args []any, records ...string) (*script.Call, error) {
	call := &script.Call{Op: op, Script: sc, Args: args, Records: records}
	if err := s.sessions.Do(ctx, call); err != nil {
		return call, err
	}
	return call, call.Err
}

// unknownItems turns the unknown outcome of a whole call into one per item.
func unknownItems(err error, call *script.Call, n int, read func(rest string, i int) error) []error {
	var whole *UnknownError
	if !errors.As(err, &whole) {
		return nil
	}
	items := make([]error, n)
	for i := range items {
		items[i] = script.NewUnknownError(whole.Op, whole.Cause, func(ctx context.Context) error {
			if err := whole.Resolve(ctx); err != nil {
				return err
			}
			return read(call.Rest, i)
		})
	}
	return items
}

func checkBatch(what string, n int) error {
	if n < 1 || n > MaxBatch {
		return &BatchError{What: what, Size: n}
	}
	return nil
}

func odd(sc *script.Script, reply any) error {
	return &script.ReplyError{Script: sc.Name, Reply: reply}
}

// millis is a duration of whole milliseconds, the longest there is where it would be longer.
func millis(ms int64) time.Duration {
	const most = int64(math.MaxInt64 / time.Millisecond)
	return time.Duration(min(max(ms, -most), most)) * time.Millisecond
}

// ceilMillis rounds a duration up to whole milliseconds, since nothing may happen early. The longest there is stays so.
func ceilMillis(d time.Duration) int64 {
	ms := int64(d / time.Millisecond)
	if d%time.Millisecond > 0 {
		ms++
	}
	return ms
}
