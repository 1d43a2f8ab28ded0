package lease

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// Bounds of what one item attaches.
const (
	maxAttachedOwner  = 512 // bytes
	maxAttachedFields = 128 // names and values together
)

// An Attached is an idempotency record that rides on a lease: what it says is done to the record in the very call that
// ends or extends the lease, and only if that item succeeds, so that the two cannot come apart. Records are HASHes with a
// time to live under the tag of the job's own partition. A record is changed only while its field `owner` holds Owner.
//
// An ack whose record has another owner, or is gone, is refused as a whole ([ErrRecord]): neither the job nor the record
// is changed. Nacks, releases, buries and extends do not depend on the record: they leave another owner's as it is. Of a
// job that was cancelled, an ack changes the record as ever; a nack, release or bury, which removes the job, deletes the
// record instead where it is the job's own (the one of its effects, named after its ID).
type Attached struct {
	Key    string        // the record's whole Redis key
	Owner  string        // 1–512 bytes
	Fields []string      // names and values in turn, at most 64 of each: they are set as they are
	Expiry string        // extend: the name of a field that is set to the lease's expiry, in ms of Redis' clock. Default: none; a settle does not look at it
	TTL    time.Duration // the record's time to live from this call on, rounded up to ms. Default 0: it keeps the one that it has
}

// clone makes an Attached that nobody else can change.
func (a *Attached) clone() *Attached {
	if a == nil {
		return nil
	}
	own := *a
	own.Fields = slices.Clone(a.Fields)
	return &own
}

// check refuses what the scripts could not do as it is: they must not stop halfway through a batch.
func (a *Attached) check(s *Store) error {
	var errs []error
	if err := s.keys.CheckRecord(a.Key); err != nil {
		errs = append(errs, fmt.Errorf("the key of the attached record: %w", err))
	}
	if a.Owner == "" || len(a.Owner) > maxAttachedOwner {
		errs = append(errs, fmt.Errorf("the owner of the attached record has %d bytes: want 1 to %d", len(a.Owner), maxAttachedOwner))
	}
	if n := len(a.Fields); n%2 != 0 || n > maxAttachedFields {
		errs = append(errs, fmt.Errorf("the attached record is given %d names and values: want as many names as values, and at most %d together", n, maxAttachedFields))
	}
	if a.TTL < 0 {
		errs = append(errs, fmt.Errorf("the attached record's time to live is %v: want 0 (as it is) or more", a.TTL))
	}
	return errors.Join(errs...)
}

// Size is how many bytes the names and values of the fields have: of all records of one call at most [MaxBytes]. 0 for nil.
func (a *Attached) Size() (bytes int) {
	if a == nil {
		return 0
	}
	for _, text := range a.Fields {
		bytes += len(text)
	}
	return bytes
}

// attachments are the records of one call, in the form that the scripts take.
type attachments struct {
	keys  []string
	args  []any
	bytes int
}

// add attaches a record to the item with this index.
func (all *attachments) add(s *Store, i int, a *Attached, mark string) error {
	if err := a.check(s); err != nil {
		return err
	}
	all.bytes += a.Size()
	all.keys = append(all.keys, a.Key)
	all.args = append(all.args, i+1, a.Owner, strconv.FormatInt(ceilMillis(a.TTL), 10), mark, len(a.Fields)/2)
	for _, text := range a.Fields {
		all.args = append(all.args, text)
	}
	return nil
}

// check bounds what the records of one call hold together. One alone may exceed it.
func (all *attachments) check() error {
	if all.bytes > MaxBytes && len(all.keys) > 1 {
		return &TooLargeError{What: "the attached records of one call", Size: all.bytes, Limit: MaxBytes}
	}
	return nil
}

// recordKeys checks the keys that are to be deleted with jobs: none, or one per ID, "" for none. It returns those that are
// given, and the numbers of their items.
func (s *Store) recordKeys(op string, ids, records []string) (given []string, items []any, err error) {
	if len(records) == 0 {
		return nil, nil, nil
	}
	if len(records) != len(ids) {
		return nil, nil, fmt.Errorf("%s: %d records of %d jobs: want none, or one for each", op, len(records), len(ids))
	}
	for i, key := range records {
		if key == "" {
			continue
		}
		if err := s.keys.CheckRecord(key); err != nil {
			return nil, nil, fmt.Errorf("%s %s: the record to delete with it: %w", op, ids[i], err)
		}
		given, items = append(given, key), append(items, i+1)
	}
	return given, items, nil
}
