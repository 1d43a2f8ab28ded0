package lease

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/leaseq/leaseq/internal/script"
)

// Published reads the policy that the queue has published; published is false, and the policy empty, where none is. It
// is one read of one key.
func (s *Store) Published(ctx context.Context) (policy Policy, published bool, err error) {
	state, err := s.PolicyState(ctx)
	return state.Policy, state.Published, err
}

// A PolicyState is all that is known of a queue's policy.
type PolicyState struct {
	Policy                 // what holds; unset: the built-in default
	Published bool         // something was published or pinned
	Limits    []LimitState // of all limits, in a fixed order

	Deployments []Deployment // what was published in the last ten minutes before the newest of them, newest first
}

// A LimitState is one limit for people to read.
type LimitState struct {
	Name     string // as "max_retries"
	Value    string // what holds, as "30s"
	Builtin  bool   // it is the built-in default
	Pinned   bool
	Deployed string // what would hold if it were not pinned; only where it is
}

// A Deployment is a policy that somebody has published, and goes on to say it.
type Deployment struct {
	Holder string            // who said so last
	At     time.Time         // when, on Redis' clock
	Limits map[string]string // by name, as LimitState has them
}

// PolicyState reads all that is known of the policy: one read of one key, repeated until it is answered, refused, or ctx ends.
func (s *Store) PolicyState(ctx context.Context) (PolicyState, error) {
	req := &script.Request{Script: limitsScript, Args: []any{}}
	if err := s.repeat(ctx, req); err != nil {
		return PolicyState{}, err
	}
	if len(req.Reply) != 2 || req.Status() != "OK" {
		return PolicyState{}, odd(limitsScript, req.Reply)
	}
	pairs, ok := req.Reply[1].([]any)
	if !ok || len(pairs)%2 != 0 {
		return PolicyState{}, odd(limitsScript, req.Reply)
	}
	fields := map[string]string{}
	for i := 0; i+1 < len(pairs); i += 2 {
		name, isName := pairs[i].(string)
		text, isText := pairs[i+1].(string)
		if !isName || !isText {
			return PolicyState{}, odd(limitsScript, req.Reply)
		}
		fields[name] = text
	}
	return readPolicyState(fields), nil
}

func readPolicyState(fields map[string]string) PolicyState {
	state := PolicyState{Published: fields["version"] != "", Limits: make([]LimitState, len(limits))}
	pinned := strings.Fields(fields["pinned"])
	for i := range limits {
		l := &limits[i]
		n, ok := readStored(fields[l.field])
		if ok && n != NoLimit {
			l.set(&state.Policy, n)
		}
		one := LimitState{Name: l.name, Pinned: slices.Contains(pinned, l.field)}
		one.Value, one.Builtin = l.told(fields[l.field])
		if one.Pinned {
			one.Deployed, _ = l.told(fields["deployed_"+l.field])
		}
		state.Limits[i] = one
	}
	for field, text := range fields {
		if strings.HasPrefix(field, "seen_") {
			if d, ok := readDeployment(text); ok {
				state.Deployments = append(state.Deployments, d)
			}
		}
	}
	slices.SortFunc(state.Deployments, func(a, b Deployment) int {
		return cmp.Or(b.At.Compare(a.At), cmp.Compare(a.Holder, b.Holder))
	})
	return state
}

// told is what a stored text means to people, and whether that is the built-in default.
func (l *limit) told(text string) (value string, builtin bool) {
	n, ok := readStored(text)
	if !ok || n == NoLimit && l.builtin != "none" {
		return l.builtin, true
	}
	return l.text(n), n == NoLimit
}

// readDeployment reads `when holder field value …`, the first two with a tab behind them.
func readDeployment(text string) (d Deployment, ok bool) {
	parts := strings.SplitN(text, "\t", 3)
	if len(parts) != 3 {
		return d, false
	}
	ms, err := strconv.ParseInt(parts[0], 10, 64)
	d = Deployment{Holder: parts[1], At: time.UnixMilli(ms), Limits: map[string]string{}}
	words := strings.Fields(parts[2])
	for i := 0; i+1 < len(words); i += 2 {
		for j := range limits {
			if limits[j].field == words[i] {
				d.Limits[limits[j].name], _ = limits[j].told(words[i+1])
			}
		}
	}
	return d, err == nil
}

// liveFor is how long a deployment counts as live after it was heard of: consumers tell once a minute.
const liveFor = 3 * time.Minute

// Live are the deployments that were heard of in the three minutes before the newest word: what they publish differs, if
// there is more than one.
func (s *PolicyState) Live() []Deployment {
	for i := range s.Deployments {
		if s.Deployments[0].At.Sub(s.Deployments[i].At) > liveFor {
			return s.Deployments[:i]
		}
	}
	return s.Deployments
}

// Mismatch says in what two deployments differ that live side by side, as after half of a deploy, or where two services
// with different options work on one queue; "" where none do. The newest that started holds.
func (s *PolicyState) Mismatch() string {
	live := s.Live()
	var parts []string
	for i := 1; i < len(live); i++ {
		for _, name := range LimitNames() {
			one, other := live[0].Limits[name], live[i].Limits[name]
			if one != other {
				parts = append(parts, fmt.Sprintf("%s is %s of %s and %s of %s", name, cmp.Or(one, "unset"), live[0].Holder, cmp.Or(other, "unset"), live[i].Holder))
			}
		}
	}
	return strings.Join(parts, "; ")
}
