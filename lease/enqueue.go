package lease

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// An Item is one job to enqueue.
type Item struct {
	ID     string
	Record []byte // the envelope: opaque here, never empty
	Size   int    // of the payload in it, in bytes, for the queue's published limit

	Delay time.Duration // from Redis' now; 0 is due at once; rounded up to milliseconds
	At    time.Time     // instead of Delay: on Redis' clock, rounded up to milliseconds

	MaxRetries, MaxExpiries *int // the job's own limits where they differ from the queue's
}

// Enqueue makes jobs whose ID is in no place, in one call; results has one error per item: nil created,
// [*DuplicateError], or [*TooLargeError]. Items act in order: the second of two with one ID is a duplicate. Where err
// is an [*UnknownError] each result is one too, and its Resolve tells of that item. Out of memory (ErrOutOfMemory)
// leaves nothing behind. At most 1,000 items.
func (s *Store) Enqueue(ctx context.Context, items []Item) (results []error, err error) {
	if err := checkBatch("enqueue", len(items)); err != nil {
		return nil, err
	}
	largest := 0
	args := make([]any, 2, 2+4*len(items))
	for i := range items {
		item := &items[i]
		if err := item.check(); err != nil {
			return nil, err
		}
		largest = max(largest, item.Size)
		args = append(args, item.ID, item.when(), item.Record, item.own())
	}
	args[0], args[1] = largest, sizes(items)
	read := func(rest string, i int) error { return enqueued(rest, i, &items[i]) }
	call, err := s.numbered(ctx, "enqueue", enqueueScript, args)
	if err != nil {
		return unknownItems(err, call, len(items), read), err
	}
	if len(call.Rest) != len(items) {
		return nil, odd(enqueueScript, call.Rest)
	}
	results = make([]error, len(items))
	for i := range items {
		results[i] = read(call.Rest, i)
	}
	return results, nil
}

func enqueued(rest string, i int, item *Item) error {
	if i >= len(rest) {
		return odd(enqueueScript, rest)
	}
	switch rest[i] {
	case 'c':
		return nil
	case 't':
		return &TooLargeError{What: "payload", Size: item.Size}
	}
	if place, ok := placeOf(rest[i]); ok && place != Nowhere {
		return &DuplicateError{ID: item.ID, Place: place}
	}
	return odd(enqueueScript, rest)
}

func (item *Item) check() error {
	switch {
	case item.ID == "" || len(item.Record) == 0:
		return errors.New("enqueue: an item needs an ID and a record")
	case item.Delay < 0:
		return fmt.Errorf("enqueue %s: a delay of %v: want 0 or more", item.ID, item.Delay)
	case item.Delay > 0 && !item.At.IsZero():
		return fmt.Errorf("enqueue %s: both a delay (%v) and a time (%v): want one of them", item.ID, item.Delay, item.At)
	}
	return nil
}

func (item *Item) when() string {
	if item.At.IsZero() {
		return strconv.FormatInt(ceilMillis(item.Delay), 10)
	}
	ms := item.At.UnixMilli()
	if item.At.Nanosecond()%int(time.Millisecond) != 0 && ms < math.MaxInt64 {
		ms++
	}
	return "@" + strconv.FormatInt(ms, 10)
}

func (item *Item) own() string {
	if item.MaxRetries == nil && item.MaxExpiries == nil {
		return ""
	}
	return limit(item.MaxRetries) + " " + limit(item.MaxExpiries) + " -"
}

func limit(n *int) string {
	if n == nil {
		return "-"
	}
	return strconv.Itoa(*n)
}

// sizes lists the payloads' sizes, which the script reads only where the largest exceeds the published limit.
func sizes(items []Item) string {
	var b strings.Builder
	for i := range items {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(strconv.Itoa(items[i].Size))
	}
	return b.String()
}
