package script

import "context"

// sealAside makes the outcome of a claim known in the background, for a claim that was refused after an earlier try may
// have run: its caller gets the refusal at once, and what that try leased, or leases yet, goes back as soon as the
// server lets it.
func (s *Sessions) sealAside(c *Call) {
	aside := &Call{
		Op: c.Op, Script: c.Script, Claim: c.Claim, ClaimArgs: c.ClaimArgs, Seen: c.Seen,
		sess: c.sess, phase: running, maybe: true,
	}
	c.sess = nil
	aside.seal(s, nil)
	if aside.phase == finished {
		return // too many wait already
	}
	nobody, end := context.WithCancel(context.Background())
	end()
	s.running.Go(func() { s.newFlight(nobody, []*Call{aside}).finish(nobody.Err()) })
}
