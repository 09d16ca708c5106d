// Package kvtest opens stores for the tests of programs that use package kv: in memory, with a clock
// that the test sets, and on a simulated disk that survives a killed process and a power cut.
//
// Each store is checked and closed at the end of its test, and what Check finds fails the test. A
// Clock is safe for concurrent use; a Disk belongs to the goroutine of its test, its stores to any.
package kvtest
