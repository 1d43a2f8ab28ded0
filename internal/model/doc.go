// Package model holds small models of the protocol, and what explores them. Each model is a transition system: states,
// and the steps that lead from one to the next. Search visits every state that can be reached within the bounds, breadth
// first, so that the first broken state found is one with the fewest steps to it, and the steps are told.
//
// There are three models to search, each for one part of the protocol, and each with a switch per safeguard: with all of
// them no state is broken, without any one of them a broken state is found.
//
//   - Calls: two jobs, two clients, numbered calls over a network that loses, delays, reorders and repeats.
//   - Grace: two holders, a keeper, sweepers on time or late, a server that is stopped, steps of its clock.
//   - Wake: consumers that wait for a wake-up, with few slots and jobs that become due.
//
// The fourth, Partition, is what the scripts of package lease do to one partition, in the plainest Go that can be right.
// It is not searched: tests run the real scripts and Partition side by side and compare all that is stored.
//
// docs/model.md says what each of them covers, and what was measured.
package model
