// Package capacity computes what a load of jobs needs: cores, memory and nodes of Redis, network, and cores of its own
// programs. It multiplies measured costs, which lie in costs.json; it asks no server.
package capacity
