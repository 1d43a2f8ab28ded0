package wire

import (
	"errors"
	"fmt"
)

// ErrUndecodable says that a record is no envelope of version 1, nor of a newer version: it was cut or lengthened, or
// was never an envelope. Errors of [Decode] that match it by [errors.Is] also say what is wrong,
// never with bytes of the record beyond one or two.
var ErrUndecodable = errors.New("undecodable record")

// A NewerVersionError says that a record begins as an envelope of a version that this program does not know. It does
// not match [ErrUndecodable]: a newer program can read the record.
type NewerVersionError struct {
	// Version is the record's version, 2 to 15.
	Version int
}

// Error names the record's version and the highest one known here.
func (e *NewerVersionError) Error() string {
	return fmt.Sprintf("record has version %d of the envelope: this program reads up to version %d", e.Version, Version)
}

func undecodable(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrUndecodable}, args...)...)
}
