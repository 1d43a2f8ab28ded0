package cases

import "os"

// full reports whether the cases run at their full numbers.
func full() bool { return os.Getenv("LEASEQ_CASES") == "full" }

// shape picks the number for `make test` or for `make cases`.
func shape[T any](small, large T) T {
	if full() {
		return large
	}
	return small
}
