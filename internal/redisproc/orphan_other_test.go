//go:build !unix

package redisproc

import "errors"

func playWatcher() error { return errors.New("no watchdog on this system") }
