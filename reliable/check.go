package reliable

import "time"

// Check reports every mistake for which an enqueue would refuse the item before anything is sent. It contacts nobody: a
// limit for payloads that the queue has published, and a job that has the ID already, are found by the enqueue alone.
func (q *Queue) Check(item Item) error {
	_, err := q.prepare(&item, time.Now())
	return err
}
