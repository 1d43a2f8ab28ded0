package chaos

import (
	"context"
	"errors"
	"os"
	"time"
)

// Child reports whether this process is a worker, or another child, of a run: a call of Run or Test will not return in it.
// A program that does something before that call leaves it out then.
func Child() bool { return os.Getenv(envRole) != "" }

// Check says what is wrong with the options, as Run would, without starting anything.
func (o *Options) Check() error {
	_, err := o.settle()
	return err
}

// Availability says which of the options' faults can be made here and which cannot, and why not. It starts what a run
// would start but the workers, as the server, makes no fault, and leaves nothing behind. An error is one that Run would
// return.
func Availability(ctx context.Context, o *Options) (faults []FaultCount, err error) {
	settings, err := o.settle()
	if err != nil {
		return nil, err
	}
	s := &storm{settings: settings, under: map[string]int{}, result: &Outcome{Seed: settings.Seed, Queue: settings.Queue, SlackMS: settings.Slack.Milliseconds()}}
	defer func() {
		over, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
		defer cancel()
		err = errors.Join(err, s.end(over, true))
	}()
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	s.usable()
	return s.result.Faults, nil
}
