// Package ttl keeps the two expiry indexes beside the data tree of a family: from key to expiry,
// and from expiry and key to nothing. It writes all three trees together, says which keys are
// expired (kv hides them), deletes the keys that are due, and verifies the invariants.
// For a time-partitioned family it says which timestamps are expired and which partitions are due.
//
// The functions work on one transaction and are as safe as that transaction: one goroutine at a
// time. Queue, which collects expired keys that readers found, is safe for concurrent use.
//
// The package knows families, rows and instants. It does not know the source of an instant, when a
// transaction begins or commits, the files, or the layout of a tree in pages.
package ttl
