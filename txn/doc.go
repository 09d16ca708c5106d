// Package txn glues pages, trees and log into a store: snapshots, the one writer, group commit,
// checkpoints, recovery.
//
// A version is a set of tree roots. A read transaction holds one and sees nothing else; a write
// transaction builds the next one copy-on-write, or in pages that nobody else reads with an undo,
// queues one record for the log, makes its version the head and lets the next writer go on before
// the disk has answered. A version may be seen when every commit up to it that asked for a sync is
// durable. Pages reach the main file at checkpoints only; recovery starts from the oldest meta page
// whose log is complete, replays it, and makes what it found durable before Open returns.
//
// Concurrency: a Store is safe for any number of goroutines, a Tx and its Cursors belong to one at
// a time. The locks and their order are told at Store. A reader takes no lock but that of the undo,
// when it comes while pages change. No goroutine runs at rest: those of a checkpoint, a recovery,
// the making of a log segment, of room in the file and of frames end with it, and those that take
// part in a large change a fifth of a millisecond later.
//
// The package knows trees by number. It does not know families, expiries or clocks; the clock mark
// is a number that it keeps with each commit for others.
package txn
