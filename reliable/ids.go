package reliable

import (
	"crypto/rand"
	"encoding/base32"
	"errors"
	"fmt"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"
)

// maxID is the greatest length of a job's ID, in bytes.
const maxID = 256

// sortable is base32hex of RFC 4648 in lower case without padding: its digits stand in the order of their bytes, so
// that texts sort as what they encode.
var sortable = base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)

// NewID returns an ID for a job: a UUID of version 7 (RFC 9562) as 26 lower-case base32hex characters. IDs made by
// one process sort in the order in which they were made; those of several processes sort by their clocks, to the
// millisecond. The random part comes from crypto/rand. Where a program has replaced [rand.Reader] by one that fails,
// NewID panics: no ID could be told from another one.
func NewID() string {
	id, err := uuid.NewV7FromReader(rand.Reader)
	if err != nil {
		panic(fmt.Errorf("reliable: no random bytes for an ID: %w", err))
	}
	return sortable.EncodeToString(id[:])
}

// validateID reports whether id can be the ID of a job: 1 to 256 bytes of valid UTF-8 without control characters.
// The error never repeats more of the ID than it may have.
func validateID(id string) error {
	switch {
	case id == "":
		return fmt.Errorf("job ID is empty: want 1 to %d bytes", maxID)
	case len(id) > maxID:
		return fmt.Errorf("job ID has %d bytes: want at most %d", len(id), maxID)
	}
	var errs []error
	if !utf8.ValidString(id) {
		errs = append(errs, fmt.Errorf("job ID %q is not valid UTF-8: want text", id))
	}
	for at, r := range id {
		if unicode.IsControl(r) {
			errs = append(errs, fmt.Errorf("job ID %q holds the control character %U at byte %d: want none", id, r, at))
			break
		}
	}
	return errors.Join(errs...)
}
