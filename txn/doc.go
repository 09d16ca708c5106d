// Package txn makes a store of pages, trees and log: snapshots, one writer, group commit,
// checkpoints, recovery.
//
// A version is a set of tree roots. A read transaction holds one version and sees only that. A
// write transaction builds the next one copy-on-write, or in place with an undo log where no
// snapshot reads the pages. Its commit queues one record for the log, makes its version the head
// and releases the writer lock before the disk has answered. A version becomes visible when every
// commit up to it that asked for a sync is durable. Pages reach the main file at checkpoints only.
// Recovery starts from the oldest meta page whose log is complete, replays the log, and makes the
// result durable before Open returns.
//
// Concurrency: a Store is safe for any number of goroutines, a Tx and its Cursors belong to one at
// a time. Store documents the locks and their order. A reader takes no lock except that of the undo
// log, when it begins while pages change in place. No goroutine runs at rest: goroutines of a
// checkpoint, a recovery, a preallocation and a parallel apply end with it, and one that verifies
// leaves ahead of a scan ends with its transaction or before.
//
// The package knows trees by number. It does not know families, expiries or clocks; it stores a
// clock mark with each commit for its caller.
package txn
