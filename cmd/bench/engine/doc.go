// Package engine lets the same workload run on different stores: a small interface, and one file
// for each store that implements it the way that store's own experts would write it. The comment
// above each Open says how it is configured, and why.
//
// A Store may be used by many goroutines, a Client by one at a time.
//
// The build tags lmdb and cgosqlite add those that need cgo.
//
// The package knows no workload and measures nothing.
package engine
