package kv

import (
	"runtime/debug"

	"github.com/ebbkv/ebb/internal/mapfault"
)

// A mapped file that somebody else cuts short, or that the disk cannot read, turns a read of memory
// into a fault. Between enter and leave such a fault is a panic that carries the address, and leave
// makes an error of it. Everything else that panics goes on unchanged. What a caller does with a
// slice later is outside of the guard.

// enter opens a call on the transaction: it takes a write transaction from Shutdown, which may want
// to end it from another goroutine, and arms the guard. The result belongs to leave.
func (tx *Tx) enter() (armed bool) {
	tx.lock()
	return debug.SetPanicOnFault(true)
}

// leave ends what enter began. It must be deferred directly, or recover would not see the panic.
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

// disarm ends a guard that stayed armed while a caller's function ran, as body tells: what panics
// there is none of our business. It must be deferred directly.
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

// faultErr makes the transaction dead, like one that met any other damage: it saw only a part of
// what it asked for.
func (tx *Tx) faultErr(addr uintptr) error {
	tx.dead = tx.db.store.Fault(addr)
	return tx.dead
}

// guarded runs fn, which belongs to no transaction, under the guard.
func (db *DB) guarded(fn func() error) error { return mapfault.Guard(db.store.Fault, fn) }
