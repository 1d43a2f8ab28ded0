// Package htmlreport shows the outcome of a chaos run as one HTML file for people.
//
// The file has everything in it: it needs no network, no script and no other file. It can be read on a wide screen, on a
// phone and on paper, on light and on dark ground. All that comes from the run is escaped, since IDs and names are
// whatever a program made them.
package htmlreport
