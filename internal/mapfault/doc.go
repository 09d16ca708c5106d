// Package mapfault makes errors of faults. A mapped file that somebody else cuts short, or that the
// disk cannot read, turns a read of memory into a fault, which ends the process unless the
// goroutine has asked for a panic (runtime/debug.SetPanicOnFault).
//
// Whoever reads pages asks for that, and recovers: kv for the calls of transactions, with Address,
// and txn for its own work, with Guard. The package knows nothing of files: which one an address
// belongs to is for its caller to find out.
package mapfault
