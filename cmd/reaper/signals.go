package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// untilSignal returns a context that ends, with the signal as its cause, at the first SIGINT or SIGTERM. The second
// ends the process at once, by calling exit. Both signals exist on every system that Go knows: on Windows Ctrl-C is
// SIGINT, and the end of a session SIGTERM. stop ends the watch, and lets signals act as if there had been none.
func untilSignal(parent context.Context, exit func(code int)) (ctx context.Context, stop func()) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	ctx, ended := until(parent, signals, exit)
	return ctx, func() {
		signal.Stop(signals)
		ended()
	}
}

// until is untilSignal for given signals.
func until(parent context.Context, signals <-chan os.Signal, exit func(code int)) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	over := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		for count := 1; ; count++ {
			select {
			case <-over:
				return
			case got := <-signals:
				if count == 1 {
					cancel(fmt.Errorf("signal: %v", got))
				} else {
					exit(signalCode(got))
				}
			}
		}
	})
	return ctx, func() {
		close(over)
		watch.Wait()
		cancel(nil)
	}
}

// signalCode is what a shell reports of a process that a signal ended.
func signalCode(s os.Signal) int {
	if number, ok := s.(syscall.Signal); ok {
		return 128 + int(number)
	}
	return exitFailure
}
