package lease

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A limit is one field of a policy. Numbers are as they are stored: milliseconds, bytes, jobs.
type limit struct {
	name     string // for people
	field    string // in Redis
	kind     limitKind
	least    int64 // that an operator may pin
	most     int64
	optional bool   // it may be taken away: there may be none
	builtin  string // what holds where nothing is published
	get      func(p *Policy) (n int64, ok bool)
	set      func(p *Policy, n int64)
}

type limitKind int

const (
	inTime limitKind = iota
	inBytes
	inNumber
)

const (
	millisecond = int64(1)
	dayInMillis = 24 * 3600 * 1000 * millisecond
	yearInDays  = 365
)

// limits lists them all, in the order in which they are told.
var limits = []limit{
	duration("lease", "lease_ms", 20, dayInMillis, false, "15s", func(p *Policy) *time.Duration { return &p.Lease }),
	duration("max_lease", "max_lease_ms", 20, dayInMillis, true, "none", func(p *Policy) *time.Duration { return &p.MaxLease }),
	duration("job_timeout", "job_timeout_ms", 1, yearInDays*dayInMillis, true, "none", func(p *Policy) *time.Duration { return &p.JobTimeout }),
	number("max_retries", inNumber, 0, 1_000_000, false, "20", func(p *Policy) **int { return &p.MaxRetries }),
	number("max_expiries", inNumber, 0, 1_000_000, false, "5", func(p *Policy) **int { return &p.MaxExpiries }),
	duration("backoff_base", "backoff_base_ms", 1, yearInDays*dayInMillis, false, "1s", func(p *Policy) *time.Duration { return &p.BackoffBase }),
	duration("backoff_cap", "backoff_cap_ms", 1, yearInDays*dayInMillis, false, "5m", func(p *Policy) *time.Duration { return &p.BackoffCap }),
	duration("expiry_backoff_base", "expiry_backoff_base_ms", 0, yearInDays*dayInMillis, true, "none", func(p *Policy) *time.Duration { return &p.ExpiryBackoff }),
	duration("expiry_backoff_cap", "expiry_backoff_cap_ms", 0, yearInDays*dayInMillis, true, "none", func(p *Policy) *time.Duration { return &p.ExpiryCap }),
	payloadLimit(),
	number("header_limit", inBytes, 0, 4<<10, true, "4096", func(p *Policy) **int { return &p.HeaderLimit }),
	number("max_length", inNumber, 0, 1_000_000_000, true, "none", func(p *Policy) **int { return &p.MaxLength }),
	maxDelay(),
	number("dead_keep", inNumber, 0, 1_000_000_000, true, "all", func(p *Policy) **int { return &p.DeadKeep }),
	duration("dead_age", "dead_age_ms", 1000, 100*yearInDays*dayInMillis, true, "none", func(p *Policy) *time.Duration { return &p.DeadAge }),
	doneAge(),
	number("done_keep", inNumber, 0, 1_000_000_000, true, "all", func(p *Policy) **int { return &p.DoneKeep }),
	number("concurrency", inNumber, 0, 1_000_000_000, true, "none", func(p *Policy) **int { return &p.Concurrency }),
	number("rate", inNumber, 0, 1_000_000, true, "none", func(p *Policy) **int { return &p.Rate }),
	duration("rate_interval", "rate_interval_ms", 1, dayInMillis, true, "1s", func(p *Policy) *time.Duration { return &p.RateInterval }),
}

// LimitNames lists the limits of a policy by the names that people write.
func LimitNames() []string {
	names := make([]string, len(limits))
	for i := range limits {
		names[i] = limits[i].name
	}
	return names
}

// LimitWants says what a limit may be pinned to; "" for a name that is none.
func LimitWants(name string) string {
	l, err := limitNamed(name)
	if err != nil {
		return ""
	}
	return l.wants()
}

func limitNamed(name string) (*limit, error) {
	for i := range limits {
		if limits[i].name == name {
			return &limits[i], nil
		}
	}
	return nil, fmt.Errorf("%.64q is no limit of a queue: want one of %s", name, strings.Join(LimitNames(), ", "))
}

// mustLimit is for names that stand in this package.
func mustLimit(name string) *limit {
	l, err := limitNamed(name)
	if err != nil {
		panic("lease: " + err.Error())
	}
	return l
}

func duration(name, field string, least, most int64, optional bool, builtin string, at func(p *Policy) *time.Duration) limit {
	return limit{
		name: name, field: field, least: least, most: most, optional: optional, builtin: builtin,
		get: func(p *Policy) (int64, bool) { return inMillis(*at(p)), *at(p) != 0 },
		set: func(p *Policy, n int64) { *at(p) = fromMillis(n) },
	}
}

func number(name string, kind limitKind, least, most int64, optional bool, builtin string, at func(p *Policy) **int) limit {
	return limit{
		name: name, field: name, kind: kind, least: least, most: most, optional: optional, builtin: builtin,
		get: func(p *Policy) (int64, bool) {
			if *at(p) == nil {
				return 0, false
			}
			return int64(**at(p)), true
		},
		set: func(p *Policy, n int64) { *at(p) = new(int(n)) },
	}
}

func payloadLimit() limit {
	return limit{
		name: "payload_limit", field: "payload_limit", kind: inBytes, least: 1, most: 256 << 20, optional: true, builtin: "none",
		get: func(p *Policy) (int64, bool) { return int64(p.PayloadLimit), p.PayloadLimit != 0 },
		set: func(p *Policy, n int64) { p.PayloadLimit = int(n) },
	}
}

// doneAge takes 0 for none: nothing is kept.
func doneAge() limit {
	l := duration("done_age", "done_age_ms", 0, 100*yearInDays*dayInMillis, true, "none", func(p *Policy) *time.Duration { return &p.DoneAge })
	set := l.set
	l.set = func(p *Policy, n int64) {
		if n == 0 {
			n = NoLimit
		}
		set(p, n)
	}
	return l
}

func maxDelay() limit {
	return limit{
		name: "max_delay", field: "max_delay_ms", most: 100 * yearInDays * dayInMillis, builtin: "168h",
		get: func(p *Policy) (int64, bool) {
			if p.MaxDelay == nil {
				return 0, false
			}
			return inMillis(*p.MaxDelay), true
		},
		set: func(p *Policy, n int64) { p.MaxDelay = new(fromMillis(n)) },
	}
}

// inMillis rounds a duration up; NoLimit stays what it is.
func inMillis(d time.Duration) int64 {
	if d < 0 {
		return int64(d)
	}
	return ceilMillis(d)
}

func fromMillis(n int64) time.Duration {
	if n == NoLimit {
		return NoLimit
	}
	return millis(n)
}

// limitText is how a number stands in Redis.
func limitText(n int64) string {
	if n == NoLimit {
		return "-"
	}
	return strconv.FormatInt(n, 10)
}

// readStored reads what stands there; false is nothing, or nothing that a limit can be.
func readStored(text string) (int64, bool) {
	if text == "-" {
		return NoLimit, true
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil && n >= 0
}

// text tells a number to people.
func (l *limit) text(n int64) string {
	switch {
	case n == NoLimit:
		return "none"
	case l.kind != inTime:
		return strconv.FormatInt(n, 10)
	case n < 0:
		return time.Duration(n).String()
	}
	text := millis(n).String()
	for _, zero := range []string{"m0s", "h0m"} {
		if short, ok := strings.CutSuffix(text, zero); ok && short != "" {
			text = short + zero[:1]
		}
	}
	return text
}

// parse reads what text tells.
func (l *limit) parse(text string) (int64, error) {
	n, err := int64(0), error(nil)
	switch {
	case text == "none" && l.optional:
		return NoLimit, nil
	case l.kind == inTime:
		var d time.Duration
		d, err = time.ParseDuration(text)
		n = ceilMillis(d)
	default:
		n, err = strconv.ParseInt(text, 10, 64)
	}
	if err != nil || n < l.least || n > l.most {
		return 0, fmt.Errorf("%s=%.64s: want %s", l.name, text, l.wants())
	}
	return n, nil
}

// wants says what may be pinned.
func (l *limit) wants() string {
	unit := map[limitKind]string{inTime: "a duration as 30s, ", inBytes: "bytes, ", inNumber: "a whole number, "}[l.kind]
	text := unit + l.text(l.least) + " to " + l.text(l.most)
	if l.optional {
		text += ", or none"
	}
	if l.name == "rate" {
		text += "; with its interval as 100/1s"
	}
	return text
}

// limitsTold are the limits that an answer holds behind its codes, where one of them has refused something.
type limitsTold []string

// cutLimits splits an answer into its codes and the limits.
func cutLimits(rest string) (codes string, told limitsTold) {
	codes, text, _ := strings.Cut(rest, " ")
	return codes, strings.Fields(text)
}

// number is one of them; false where it is not told.
func (t limitsTold) number(i int) (int64, bool) {
	if i >= len(t) {
		return 0, false
	}
	n, ok := readStored(t[i])
	return n, ok && n != NoLimit
}

// tooLarge is what a size is refused with; nil where the limit is not told.
func (t limitsTold) tooLarge(i int, what string, size int) error {
	if n, ok := t.number(i); ok {
		return &TooLargeError{What: what, Size: size, Limit: int(n)}
	}
	return nil
}

// tooLong is what a delay is refused with.
func (t limitsTold) tooLong(i int, id string, asked time.Duration) error {
	if n, ok := t.number(i); ok {
		return &DelayTooLongError{ID: id, Asked: asked, Limit: millis(n)}
	}
	return nil
}
