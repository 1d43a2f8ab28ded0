// Package durability holds the tests of what Redis forgets when it or its machine fails, and what that does to a queue:
// rows 9 to 12 of the table of faults. TestRow09… kills redis-servers, TestRow10… cuts their power, TestRow11… breaks
// their append-only files, and TestRow12… fills their disks, while producers enqueue and a consumer works.
//
// What was acknowledged and what was lost is counted by package chaos from the records of the run. Rows 9 and 10 print a
// line for each setting of appendfsync. `make test` runs a few of each fault, `make durability` the full numbers.
package durability
