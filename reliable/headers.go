package reliable

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"unicode"
	"unicode/utf8"

	"github.com/leaseq/leaseq/internal/wire"
)

// MaxHeaders is how large the headers of a job may be together, names and values, in bytes.
const MaxHeaders = wire.MaxHeaders

// checkHeaders returns everything that is wrong with headers; one that they are too large is a [*TooLargeError].
func checkHeaders(headers map[string]string) error {
	if len(headers) == 0 {
		return nil
	}
	var errs []error
	size := headerSize(headers)
	if size > MaxHeaders {
		errs = append(errs, &TooLargeError{What: "headers", Size: size, Limit: MaxHeaders})
	}
	const most = 3 // names that an error tells of
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		err := checkHeaderName(name)
		if err == nil {
			continue
		}
		if errs = append(errs, err); len(errs) > most {
			break
		}
	}
	return errors.Join(errs...)
}

// headerSize is what counts against limits: names and values together, in bytes.
func headerSize(headers map[string]string) (size int) {
	for name, value := range headers {
		size += len(name) + len(value)
	}
	return size
}

func checkHeaderName(name string) error {
	if name == "" {
		return errors.New("a header's name is empty: want at least 1 byte")
	}
	if !utf8.ValidString(name) {
		return fmt.Errorf("header name %s is not valid UTF-8: names are text, only values may hold any bytes", quoted(name))
	}
	for at, r := range name {
		if unicode.IsControl(r) {
			return fmt.Errorf("header name %s holds the control character %U at byte %d: names are text, only values may hold any bytes", quoted(name), r, at)
		}
	}
	return nil
}

// quoted is a name in an error: not all of one that is as large as headers may be.
func quoted(name string) string {
	const most = 64
	if len(name) > most {
		return fmt.Sprintf("%q…", name[:most])
	}
	return fmt.Sprintf("%q", name)
}
