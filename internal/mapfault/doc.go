// Package mapfault turns faults into errors. A mapped file that another process truncates, or that
// the disk cannot read, turns a read of memory into a fault, which ends the process unless the
// goroutine has requested a panic (runtime/debug.SetPanicOnFault).
//
// Code that reads pages requests the panic and recovers: kv for the calls of transactions, with
// Address, and txn for its own work, with Guard. The package knows nothing of files: its caller
// finds the file that an address belongs to.
package mapfault
