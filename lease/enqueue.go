package lease

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// An Item is one job to enqueue.
type Item struct {
	ID     string
	Record []byte // the envelope: opaque here, never empty
	Size   int    // of the payload in it, in bytes, for the queue's published limit

	HeaderSize int // of the headers in it, names and values together, in bytes, for the same

	Delay time.Duration // from Redis' now; 0 is due at once; rounded up to milliseconds
	At    time.Time     // instead of Delay: on Redis' clock, rounded up to milliseconds

	MaxRetries, MaxExpiries *int      // the job's own limits where they differ from the queue's
	NotAfter                time.Time // too late to start after it, on Redis' clock, cut to milliseconds; zero: none

	// Replace puts the job in the place of one with its ID that is due, dead or done: that one goes with its record,
	// counters, own limits, errors and result. One in processing is left alone: [*DuplicateError].
	Replace bool
}

// A Made is what became of an item.
type Made struct {
	Replaced bool  // created instead of one that was there
	Err      error // as [Store.Enqueue] says
}

// Enqueue makes jobs whose ID is in no place, in one call; results has one error per item: nil created,
// [*DuplicateError], or what the queue's published limits refuse: [*TooLargeError], [*DelayTooLongError],
// [*QueueFullError]. Items act in order: the second of two with one ID is a duplicate, and of more than the queue has room
// for the first are made. Where err is an [*UnknownError] each result is one too, and its Resolve tells of that item. Out of
// memory (ErrOutOfMemory) leaves nothing behind. At most 1,000 items.
func (s *Store) Enqueue(ctx context.Context, items []Item) (results []error, err error) {
	made, err := s.EnqueueEach(ctx, items)
	if made == nil {
		return nil, err
	}
	results = make([]error, len(made))
	for i := range made {
		results[i] = made[i].Err
	}
	return results, err
}

// EnqueueEach is Enqueue that also tells which jobs took the place of one.
func (s *Store) EnqueueEach(ctx context.Context, items []Item) ([]Made, error) {
	args, err := enqueueArgs(items)
	if err != nil {
		return nil, err
	}
	read := func(rest string, i int) error { return enqueued(rest, i, items) }
	call, err := s.numbered(ctx, "enqueue", enqueueScript, args)
	results := unknownItems(err, call, len(items), read)
	if err != nil && results == nil {
		return nil, err
	}
	made := make([]Made, len(items))
	for i := range items {
		if err == nil {
			made[i].Err = read(call.Rest, i)
			made[i].Replaced = made[i].Err == nil && call.Rest[i] == 'p'
		} else {
			made[i].Err = results[i]
		}
	}
	return made, err
}

// enqueueArgs checks items and writes them as the script takes them.
func enqueueArgs(items []Item) ([]any, error) {
	if err := checkBatch("enqueue", len(items)); err != nil {
		return nil, err
	}
	const head = 7
	largest, largestHeaders := 0, 0
	args := make([]any, head, head+2*len(items))
	texts := make([]itemTexts, len(items)) // pointers to these are cheaper than copies in each argument
	for i := range items {
		item, text := &items[i], &texts[i]
		if err := item.check(); err != nil {
			return nil, err
		}
		largest, largestHeaders = max(largest, item.Size), max(largestHeaders, item.HeaderSize)
		*text = itemTexts{id: item.ID, record: item.Record}
		args = append(args, &text.id, &text.record)
	}
	args[0], args[1] = largest, sizes(items, func(item *Item) int { return item.Size })
	args[2], args[3] = largestHeaders, ""
	if largestHeaders > 0 {
		args[3] = sizes(items, func(item *Item) int { return item.HeaderSize })
	}
	args[4], args[5], args[6] = modes(items), whens(items), owns(items)
	return args, nil
}

// itemTexts are what a call keeps of an item, which its caller may change afterwards while the call is still repeated.
type itemTexts struct {
	id     string
	record recordText
}

// A recordText is an argument by its address.
type recordText []byte

// MarshalBinary is how the client asks for an argument's bytes.
func (r *recordText) MarshalBinary() ([]byte, error) { return *r, nil }

// modes has a letter for each item, and is empty where none replaces.
func modes(items []Item) string {
	if !slices.ContainsFunc(items, func(item Item) bool { return item.Replace }) {
		return ""
	}
	out := make([]byte, len(items))
	for i := range items {
		out[i] = '-'
		if items[i].Replace {
			out[i] = 'r'
		}
	}
	return string(out)
}

// whens says when items are due: one word where it is the same for all, else one for each.
func whens(items []Item) string {
	same := 0
	for same < len(items) && items[same].Delay == items[0].Delay && items[same].At.Equal(items[0].At) {
		same++
	}
	if same == len(items) {
		return items[0].when()
	}
	words := make([]string, len(items))
	for i := range items {
		words[i] = items[i].when()
	}
	return strings.Join(words, " ")
}

// owns has a line for each item, and is empty where none has limits of its own.
func owns(items []Item) string {
	var b strings.Builder
	for i := range items {
		own := items[i].own()
		if own != "" && b.Len() == 0 {
			b.WriteString(strings.Repeat("\n", i)) // of those before it
		}
		if own != "" || b.Len() > 0 {
			b.WriteString(own)
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// enqueued reads what became of one item.
func enqueued(rest string, i int, items []Item) error {
	codes, limits := cutLimits(rest) // payload, headers, delay, length
	if len(codes) != len(items) {
		return odd(enqueueScript, rest)
	}
	item, refused := &items[i], error(nil)
	switch codes[i] {
	case 'c':
		return nil
	case 'p':
		if item.Replace {
			return nil
		}
	case 't':
		refused = limits.tooLarge(0, "payload", item.Size)
	case 'h':
		refused = limits.tooLarge(1, "headers", item.HeaderSize)
	case 'l':
		refused = limits.tooLong(2, item.ID, item.asked())
	case 'f':
		if n, ok := limits.number(3); ok {
			refused = &QueueFullError{Limit: int(n)}
		}
	}
	if refused != nil {
		return refused
	}
	if place, ok := placeOf(codes[i]); ok && place != Nowhere {
		return &DuplicateError{ID: item.ID, Place: place}
	}
	return odd(enqueueScript, rest)
}

// asked is the delay that is asked for: until a time, by the clock of this process.
func (item *Item) asked() time.Duration {
	if item.At.IsZero() {
		return item.Delay
	}
	return time.Until(item.At)
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
	if item.MaxRetries == nil && item.MaxExpiries == nil && item.NotAfter.IsZero() {
		return ""
	}
	return ownLimit(item.MaxRetries) + " " + ownLimit(item.MaxExpiries) + " " + ownTime(item.NotAfter)
}

func ownTime(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return strconv.FormatInt(t.UnixMilli(), 10)
}

func ownLimit(n *int) string {
	if n == nil {
		return "-"
	}
	return strconv.Itoa(*n)
}

// sizes lists sizes, which the script reads only where the largest exceeds the published limit.
func sizes(items []Item, size func(*Item) int) string {
	var b strings.Builder
	for i := range items {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(strconv.Itoa(size(&items[i])))
	}
	return b.String()
}
