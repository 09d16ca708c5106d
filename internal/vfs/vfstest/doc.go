// Package vfstest holds the one set of tests that every file system behind vfs.FS must pass, so
// that what runs in memory or on a simulated disk may stand for the real one.
//
// Run starts subtests one after the other on the caller's goroutine, except where a test is about
// concurrency. The package knows nothing about durability: what a crash leaves is the business of
// crashfs.
package vfstest
