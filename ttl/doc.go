// Package ttl keeps the two expiry indexes beside the data tree of a family: from key to expiry,
// and from expiry and key to nothing. It writes all three trees together, hides nothing by itself
// but tells what is expired, finds and deletes what is due, and proves the invariants.
//
// The functions work on one transaction and are as safe as that transaction: one goroutine at a
// time. Queue, which collects expired keys that readers met, is safe for concurrent use.
//
// The package knows families, rows and instants. It does not know where an instant comes from, when
// a transaction begins or commits, which files there are, or how a tree is laid out in pages.
package ttl
