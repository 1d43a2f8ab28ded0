package record

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"
)

// The environment of a worker process of a chaos run, whatever program it is. URL is that of the Redis server that this
// worker is to use: the way through which its faults come.
const (
	EnvURL     = "LEASEQ_CHAOS_URL"     // redis://…
	EnvPrefix  = "LEASEQ_CHAOS_PREFIX"  // of the keys
	EnvQueue   = "LEASEQ_CHAOS_QUEUE"   // the queue's name
	EnvSlots   = "LEASEQ_CHAOS_SLOTS"   // the Concurrency that the Consumer is to have
	EnvLease   = "LEASEQ_CHAOS_LEASE"   // the queue's lease, as in 2s
	EnvHistory = "LEASEQ_CHAOS_HISTORY" // the file that the Recorder writes
	EnvProcess = "LEASEQ_CHAOS_PROCESS" // the process' name in the history
)

// FromEnv opens the Recorder that a chaos run asks for in the environment. Outside of one, which is where EnvHistory is
// not set, it returns nil and no error: all methods of a nil *Recorder do nothing but what they stand in for, so that a
// program can keep them for ever. An environment that is incomplete is an error that names the variable.
func FromEnv() (*Recorder, error) {
	file := os.Getenv(EnvHistory)
	if file == "" {
		return nil, nil
	}
	o := &Options{Queue: os.Getenv(EnvQueue), Process: os.Getenv(EnvProcess)}
	var errs []error
	for name, value := range map[string]string{EnvQueue: o.Queue, EnvProcess: o.Process} {
		if value == "" {
			errs = append(errs, fmt.Errorf("%s is empty", name))
		}
	}
	var err error
	if text := os.Getenv(EnvSlots); text != "" {
		if o.Slots, err = strconv.Atoi(text); err != nil {
			errs = append(errs, fmt.Errorf("%s is %q: want a number", EnvSlots, text))
		}
	}
	if text := os.Getenv(EnvLease); text != "" {
		if o.Lease, err = time.ParseDuration(text); err != nil {
			errs = append(errs, fmt.Errorf("%s is %q: want a duration like 2s", EnvLease, text))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	return Open(file, o)
}
