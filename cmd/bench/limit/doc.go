// Package limit does the least work that a job can be done with on this machine: append to a file
// and sync it, search a sorted array, copy memory. No store can be faster, so the distance to it is
// what is left to gain.
//
// An Array may be read by many goroutines, a Log belongs to one. The package knows no store.
package limit
