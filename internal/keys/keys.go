// Package keys is the only place that builds the names of Redis keys.
//
// Every key of one partition of a queue carries the same hash tag, so that a Redis Cluster keeps them in one slot:
//
//	<prefix>:v1:{<queue>}:<name>       partition 0
//	<prefix>:v1:{<queue>#<p>}:<name>   partition p ≥ 1
//
// Names and prefixes hold neither braces nor '#', so two different queues, or two partitions, never share a key, and
// the tag that Redis sees is always the one written here.
package keys

import (
	"fmt"
	"strconv"
)

// DefaultPrefix is the prefix of all keys where none is given.
const DefaultPrefix = "leaseq"

// Version is the segment that names the layout of the keys and of what they hold.
const Version = "v1"

// MaxName is the greatest length of a name or prefix, in bytes.
const MaxName = 128

// Names lists the fixed keys of a partition, without prefix and tag. Nothing else is ever written under a queue's tag,
// but for the idempotency records, which have a time to live.
var Names = []string{
	"due", "processing", "dead", "done", // the four places of a job
	"jobs", "leases", "counts", "errors", "results", // what is kept per job
	"fence", "sessions", "holders", // who may do what
	"sweep", "wake", "rate", "policy", "stats", // what is kept per partition
}

// A Partition builds the keys of one partition of one queue.
type Partition struct {
	prefix, queue string
	base          string // what all keys begin with: prefix, version and tag
	byName        map[string]string
}

// New checks prefix and queue name and returns the keys of the given partition (0 is the first). An empty prefix is
// not replaced by the default: it is refused as any other name that breaks the rule.
func New(prefix, queue string, partition int) (*Partition, error) {
	if err := ValidateName("prefix", prefix); err != nil {
		return nil, err
	}
	if err := ValidateName("queue name", queue); err != nil {
		return nil, err
	}
	if partition < 0 {
		return nil, fmt.Errorf("partition %d: must be 0 or more", partition)
	}
	tag := queue
	if partition > 0 {
		tag += "#" + strconv.Itoa(partition)
	}
	p := &Partition{prefix: prefix, queue: queue, byName: make(map[string]string, len(Names))}
	p.base = prefix + ":" + Version + ":{" + tag + "}:"
	for _, name := range Names {
		p.byName[name] = p.base + name
	}
	return p, nil
}

// Key returns the full key for one of [Names]. Another name is a mistake in this program, and panics.
func (p *Partition) Key(name string) string {
	key, ok := p.byName[name]
	if !ok {
		panic("keys: no key is called " + strconv.Quote(name))
	}
	return key
}

// All returns the full keys in the order of [Names].
func (p *Partition) All() []string {
	all := make([]string, len(Names))
	for i, name := range Names {
		all[i] = p.byName[name]
	}
	return all
}

// Queue returns the queue's name.
func (p *Partition) Queue() string { return p.queue }

// Prefix returns the prefix of the keys.
func (p *Partition) Prefix() string { return p.prefix }

// Registry returns the key of the SET that holds the names of all queues under a prefix. It has no hash tag and is
// written by plain commands only, never by a script.
func Registry(prefix string) string { return prefix + ":" + Version + ":queues" }

// ValidateName reports whether name can be a prefix or the name of a queue: 1 to 128 of the characters
// A–Z a–z 0–9 . _ : / -. what names the thing in the error, as in "queue name".
func ValidateName(what, name string) error {
	if name == "" {
		return fmt.Errorf("%s is empty: want 1 to %d of A-Z a-z 0-9 . _ : / -", what, MaxName)
	}
	if len(name) > MaxName {
		return fmt.Errorf("%s has %d bytes: want at most %d", what, len(name), MaxName)
	}
	for i := 0; i < len(name); i++ {
		if !allowed(name[i]) {
			return fmt.Errorf("%s %q holds %q at byte %d: only A-Z a-z 0-9 . _ : / - are allowed", what, name, name[i], i)
		}
	}
	return nil
}

func allowed(c byte) bool {
	switch {
	case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		return true
	}
	return c == '.' || c == '_' || c == ':' || c == '/' || c == '-'
}
