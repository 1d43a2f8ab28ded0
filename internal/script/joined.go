package script

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// firstWrite is how scripts begin that write.
const firstWrite = "call('HDEL', sessions, '')\n"

// mostJoined is how many arguments a joined call may have.
const mostJoined = 100_000

// Join makes of two numbered scripts one that runs both, first and second, and gives both answers: one call instead of
// two for a server whose time goes into calls more than into what they do. Each half keeps its session, its number and
// its answer, as if it had been sent alone; where one of them raises an error, both are sent alone at once, which their
// numbers make safe: what has run gives its stored answer. From then on whatever sends the two in one round trip sends
// the joined script.
//
// second must take as many arguments as its header names, and no records. Join panics where that is not so: both are
// package variables.
func Join(first, second *Script) *Script {
	if second.Records || !first.Numbered() || !second.Numbered() || slices.Contains(second.Args, "then") {
		panic(fmt.Sprintf("script: %s and %s cannot be joined", first.Name, second.Name))
	}
	joined := &Script{
		Header: Header{
			Name: first.Name + "+" + second.Name, About: "both, one after the other",
			Keys: slices.Clone(first.Keys), Records: first.Records, Args: first.Args,
			Answer: "the answers of both",
		},
		libraries: first.libraries,
	}
	for _, name := range second.Keys {
		if !slices.Contains(joined.Keys, name) {
			joined.Keys = append(joined.Keys, name)
		}
	}
	joined.body = joinedBody(first, second, joined.Keys)
	joined.source = withLibraries(joined.body, joined.libraries...)
	joined.sha = digest(joined.source)
	first.joined, first.partner = joined, second
	return joined
}

// joinedBody gives each half what it takes for its KEYS and its ARGV: the second has the last arguments, and keys of its
// own behind the first one's fixed ones. What both would do alike is done once: the write that a full memory refuses, and
// the look at the clock.
func joinedBody(first, second *Script, all []string) string {
	var b strings.Builder
	b.WriteString("local joined = true\n")
	b.WriteString("local clock, read, text = now_us, nil, nil\n")
	b.WriteString("local function now_us()\n  if not read then\n    read, text = clock()\n  end\n  return read, text\nend\n\n")
	fmt.Fprintf(&b, "local function first_half(KEYS, ARGV)\n%send\n\n", first.body)
	fmt.Fprintf(&b, "local function second_half(KEYS, ARGV)\n%send\n\n", strings.Replace(second.body, firstWrite, "", 1))
	places := make([]string, len(second.Keys))
	for i, name := range second.Keys {
		places[i] = fmt.Sprintf("KEYS[%d]", slices.Index(all, name)+1)
	}
	fmt.Fprintf(&b, "local keys, args, n = { %s }, {}, #ARGV\n", strings.Join(places, ", "))
	fmt.Fprintf(&b, "for i = %d, 1, -1 do\n  args[i], ARGV[n] = ARGV[n], nil\n  n = n - 1\nend\n", len(second.Args))
	for range all[len(first.Keys):] {
		fmt.Fprintf(&b, "table.remove(KEYS, %d)\n", len(first.Keys)+1)
	}
	b.WriteString("local answer = first_half(KEYS, ARGV)\nreturn {answer, second_half(keys, args)}\n")
	return b.String()
}

// together is the one request for two whose scripts are joined, or nil.
func together(requests []*Request) *Request {
	if len(requests) != 2 {
		return nil
	}
	a, b := requests[0], requests[1]
	if a.Script.joined == nil || a.Script.partner != b.Script || len(a.Args)+len(b.Args) > mostJoined {
		return nil
	}
	return &Request{Script: a.Script.joined, Session: a.Session, Number: a.Number, Args: a.Args, Records: a.Records, then: b}
}

// apart gives the two requests what came of the joined one; false means that they must be sent alone.
func (q *Request) apart(requests []*Request) bool {
	if _, odd := errors.AsType[*ReplyError](q.Err); odd {
		return false
	}
	if what, _ := classify(q.Err); what == refused {
		return false
	}
	for i, req := range requests {
		req.Reply, req.Err, req.SentAt = nil, q.Err, q.SentAt
		if q.Err != nil {
			continue
		}
		if len(q.Reply) == len(requests) {
			req.Reply, _ = q.Reply[i].([]any)
		}
		if len(req.Reply) == 0 {
			req.Reply, req.Err = nil, &ReplyError{Script: req.Script.Name, Reply: q.Reply}
		}
	}
	return true
}
