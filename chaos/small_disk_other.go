//go:build !linux

package chaos

import "errors"

// A smallDisk is a file system that can be full. There is none here.
type smallDisk struct{}

func mountDisk(string) (*smallDisk, error) {
	return nil, errors.New("needs Linux, to mount a small disk")
}

func (*smallDisk) fill() error  { return nil }
func (*smallDisk) empty() error { return nil }
func (*smallDisk) close() error { return nil }
