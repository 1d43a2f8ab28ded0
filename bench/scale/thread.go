package main

import (
	"fmt"
	"time"
)

// A turn is how long a thread has run on a processor, and how long it was ready to and had to wait for one.
type turn struct{ ran, waited time.Duration }

// parseTurn reads what Linux says of a thread in its schedstat: nanoseconds that it ran, nanoseconds that it waited, and
// how often it was put on a processor.
func parseTurn(text string) (turn, error) {
	var ran, waited, times int64
	if _, err := fmt.Sscan(text, &ran, &waited, &times); err != nil {
		return turn{}, fmt.Errorf("schedstat has %q: want three numbers: %w", text, err)
	}
	return turn{time.Duration(ran), time.Duration(waited)}, nil
}
