package keys

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxID is the greatest length of a job's ID, and of the key of a guard, in bytes.
const MaxID = 256

// How the names of idempotency records begin.
const (
	guardName = "guard:"
	onceName  = "once:"
)

// Guard returns the key of the record that a guard keeps for an idempotency key, which [ValidateID] has let pass.
func (p *Partition) Guard(key string) string { return p.base + guardName + key }

// Once returns the key of the record of a job's effects; the partition is the job's own. An ID that [ValidateID] refuses
// is no job's.
func (p *Partition) Once(id string) string { return p.base + onceName + id }

// CheckRecord reports whether key is that of an idempotency record of this partition: a whole Redis key, as Guard and
// Once return it. Whatever else a script is given beside the fixed keys would lie in another slot, or would not be for it
// to touch.
func (p *Partition) CheckRecord(key string) error {
	name, ok := strings.CutPrefix(key, p.base)
	switch {
	case !ok:
		return fmt.Errorf("%.300q does not begin with %s, as all keys of this partition do", key, p.base)
	case !IsRecord(name):
		return fmt.Errorf("%.300q is no idempotency record: want %s or %s after %s", key, guardName, onceName, p.base)
	}
	_, of, _ := strings.Cut(name, ":")
	return ValidateID("what the record is for", of)
}

// ValidateID reports whether id can be the ID of a job, or the key of a guard: 1 to 256 bytes of valid UTF-8 without
// control characters. what names the thing in the error, as in "idempotency key".
func ValidateID(what, id string) error {
	switch {
	case id == "":
		return fmt.Errorf("%s is empty: want 1 to %d bytes", what, MaxID)
	case len(id) > MaxID:
		return fmt.Errorf("%s has %d bytes: want at most %d", what, len(id), MaxID)
	case !utf8.ValidString(id):
		return fmt.Errorf("%s %q is not valid UTF-8", what, id)
	}
	for i, r := range id {
		if unicode.IsControl(r) {
			return fmt.Errorf("%s %q holds the control character %U at byte %d", what, id, r, i)
		}
	}
	return nil
}
