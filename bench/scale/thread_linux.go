package main

import (
	"fmt"
	"os"
)

// turnOf tells of the main thread of a process, and of no other: the one that runs the scripts of a redis-server. It is not ok where the
// kernel does not tell.
func turnOf(pid int) (t turn, ok bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid))
	if err != nil {
		return turn{}, false
	}
	t, err = parseTurn(string(text))
	return t, err == nil && t.ran > 0
}
