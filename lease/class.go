package lease

import "strings"

// A Class says why a job is dead, in one word that programs can compare. It is stored behind the reason of the job's last
// error, by whoever ended the job; where nothing is stored it is "".
type Class string

// The classes. See [Verdict.Class] for what a holder stores; ClassByHand is stored by [Store.Bury].
const (
	ClassUnknown     Class = ""                // nothing is stored
	ClassDiscarded   Class = "discarded"       // its handler said that it is of no use
	ClassRetries     Class = "retries-used-up" // it failed once more than MaxRetries
	ClassExpiries    Class = "leases-expired"  // its leases ran out once more than MaxExpiries
	ClassBadPayload  Class = "bad-payload"     // its payload does not decode into its handler's type
	ClassUndecodable Class = "undecodable"     // its record does not decode
	ClassNoRecord    Class = "no-record"       // its record was gone
	ClassNoHandler   Class = "no-handler"      // nobody has a handler for its kind
	ClassTooLate     Class = "too-late"        // its deadline had passed before it could start
	ClassByHand      Class = "buried-by-hand"  // an operator put it there
)

// Classes lists them, but for ClassUnknown.
func Classes() []Class {
	return []Class{
		ClassDiscarded, ClassRetries, ClassExpiries, ClassBadPayload, ClassUndecodable, ClassNoRecord, ClassNoHandler,
		ClassTooLate, ClassByHand,
	}
}

// known reports whether a text is a class.
func (c Class) known() bool {
	for _, one := range Classes() {
		if c == one {
			return true
		}
	}
	return false
}

// with is a reason as it is stored: a class follows behind a tab, which no reason of ours holds.
func (c Class) with(reason string) string {
	if c == ClassUnknown {
		return reason
	}
	return reason + "\t" + string(c)
}

// cutClass splits what is stored into reason and class.
func cutClass(stored string) (string, Class) {
	at := strings.LastIndexByte(stored, '\t')
	if at < 0 || !Class(stored[at+1:]).known() {
		return stored, ClassUnknown
	}
	return stored[:at], Class(stored[at+1:])
}
