// Package callback calls functions of users on goroutines of ours.
package callback

// Run calls fn, and returns when it has returned. A panic of fn goes on.
//
// A fn that calls runtime.Goexit, as FailNow of a test does, would end a goroutine that must go on, and leave a process
// that lives and does nothing. A Goexit cannot be stopped, so that Run panics then: the process ends with an exit code
// that is not zero, and the text says what was called.
func Run(what string, fn func()) {
	returned := false
	defer func() {
		if returned {
			return
		}
		if value := recover(); value != nil {
			panic(value)
		}
		panic(what + " has called runtime.Goexit (as FailNow of a test does) on a goroutine that must go on: it must return")
	}()
	fn()
	returned = true
}
