// Package cases holds the situations that have hurt people who run such queues in production, each as a test named for
// it: TestS02… is case S02 of docs/cases.md. Every case runs in its shape, at small numbers and short leases, with
// `make test`, and at full numbers with `make cases` (LEASEQ_CASES=full).
package cases
