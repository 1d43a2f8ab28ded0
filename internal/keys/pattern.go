package keys

import (
	"strconv"
	"strings"
)

// Pattern returns a glob pattern, as SCAN takes it, that matches every key with the tag of one queue, whatever its
// partition, and no key of another queue. Prefix and queue name must be valid: none of the characters that they may hold
// has a meaning in a pattern.
func Pattern(prefix, queue string) string { return prefix + ":" + Version + ":{" + queue + "[}#]*" }

// Split tells of a key which partition of a queue it belongs to, and its name there, without prefix and tag; ok is false
// for a key that does not have the form of this queue's.
func Split(prefix, queue, key string) (partition int, name string, ok bool) {
	rest, ok := strings.CutPrefix(key, prefix+":"+Version+":{"+queue)
	if !ok {
		return 0, "", false
	}
	tag, name, ok := strings.Cut(rest, "}:")
	if !ok || tag == "" {
		return 0, name, ok
	}
	digits, ok := strings.CutPrefix(tag, "#")
	partition, err := strconv.Atoi(digits)
	if !ok || err != nil || partition < 1 || strconv.Itoa(partition) != digits {
		return 0, "", false
	}
	return partition, name, true
}

// IsRecord reports whether a name without prefix and tag is that of an idempotency record.
func IsRecord(name string) bool {
	return strings.HasPrefix(name, guardName) || strings.HasPrefix(name, onceName)
}
