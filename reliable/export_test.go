package reliable

// WaitingToEnqueue is how many callers of Enqueue wait for a call to go out with.
func (q *Queue) WaitingToEnqueue() int {
	q.group.mu.Lock()
	defer q.group.mu.Unlock()
	return len(q.group.waiting)
}
