// Package failover holds the tests of what happens when another server becomes the one that a queue is on: a primary with
// a replica under Sentinels, or in a Redis Cluster, that dies, is cut off or stands still, and a slot that moves. The
// histories are judged by package chaos, what was lost is counted and logged. One host, loopback, proxies.
package failover
