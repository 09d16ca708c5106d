package kv

import (
	"runtime/debug"

	"github.com/ebbkv/ebb/internal/mapfault"
)

// If another process truncates a mapped file, or the disk cannot read it, a read of memory faults.
// Between enter and leave such a fault is a panic that carries the address, and leave turns it into
// an error. Other panics propagate. Slices that a caller uses later are outside of the guard.

// enter begins a call on the transaction: it locks a write transaction against Shutdown, which may
// end it from another goroutine, and arms the guard. The result is for leave.
func (tx *Tx) enter() (armed bool) {
	tx.lock()
	return debug.SetPanicOnFault(true)
}

// leave ends a call. It must be deferred directly, or recover would not see the panic.
func (tx *Tx) leave(armed bool, err *error) {
	debug.SetPanicOnFault(armed)
	r := recover()
	addr, fault := mapfault.Address(r)
	if fault {
		*err = tx.faultErr(addr)
	}
	tx.unlock()
	if r != nil && !fault {
		panic(r)
	}
}

// disarm ends a guard that stayed armed while a callback ran. body says that the callback runs: its
// panics propagate. disarm must be deferred directly.
func (tx *Tx) disarm(armed bool, body *bool, err *error) {
	debug.SetPanicOnFault(armed)
	if *body {
		return
	}
	r := recover()
	if addr, fault := mapfault.Address(r); fault {
		*err = tx.faultErr(addr)
	} else if r != nil {
		panic(r)
	}
}

// faultErr makes the transaction dead, as other damage does: the call read only a part of its data.
func (tx *Tx) faultErr(addr uintptr) error {
	return tx.die(tx.db.store.Fault(addr))
}

// guarded runs fn, outside of any transaction, under the guard.
func (db *DB) guarded(fn func() error) error { return mapfault.Guard(db.store.Fault, fn) }
