package script

import "fmt"

// MaxRecords is how many records one call may name.
const MaxRecords = 1000

// A RecordError refuses a call for the records that it names. Nothing was sent, of the calls of the same round trip
// neither.
type RecordError struct {
	Script string
	Err    error
}

func (e *RecordError) Error() string { return fmt.Sprintf("script %s: %v", e.Script, e.Err) }

// Unwrap returns what is wrong with the records.
func (e *RecordError) Unwrap() error { return e.Err }

// checkRecords finds records that a script does not take, or that are not the partition's.
func (r *Runner) checkRecords(requests []*Request) error {
	for _, req := range requests {
		if len(req.Records) == 0 {
			continue
		}
		if err := r.CheckRecords(req.Script, req.Records); err != nil {
			return err
		}
	}
	return nil
}

// CheckRecords returns the [*RecordError] with which a call of a script that names these records would be refused.
func (r *Runner) CheckRecords(s *Script, records []string) error {
	switch n := len(records); {
	case n > 0 && !s.Records:
		return &RecordError{Script: s.Name, Err: fmt.Errorf("it takes no records, and is given %d", n)}
	case n > MaxRecords:
		return &RecordError{Script: s.Name, Err: fmt.Errorf("%d records: want at most %d", n, MaxRecords)}
	}
	for _, key := range records {
		if err := r.keys.CheckRecord(key); err != nil {
			return &RecordError{Script: s.Name, Err: err}
		}
	}
	return nil
}
