// Package memgroup runs a child process in a control group of its own whose memory is limited, page
// cache included, for tests and benchmarks. It needs Linux, root, and a memory controller of
// version 1 or 2 at its usual place; New says what is missing.
//
// A Group belongs to one goroutine. The package knows no store.
package memgroup
