// Package sqlguardtest holds the tests of idempotency/sqlguard against a real PostgreSQL, here so that no driver enters
// the main module.
package sqlguardtest
