package kv

import (
	"runtime"
	"runtime/debug"

	"github.com/ebbkv/ebb/internal/badfile"
)

// A mapped file that somebody else cuts short turns a read of memory into a fault. Between enter and leave such a
// fault is a panic that carries the address, and leave makes an error of it. Everything else that panics goes on
// unchanged. What a caller does with a slice later is outside of the guard.

// enter opens a call on the transaction: it takes a write transaction from Shutdown, which may want to end it from
// another goroutine, and arms the guard. The result belongs to leave.
func (tx *Tx) enter() (armed bool) {
	tx.lock()
	return debug.SetPanicOnFault(true)
}

// leave ends what enter began. It must be deferred directly, or recover would not see the panic.
func (tx *Tx) leave(armed bool, err *error) {
	debug.SetPanicOnFault(armed)
	r := recover()
	if r != nil && isFault(r) {
		*err, r = tx.died(r), nil
	}
	tx.unlock()
	if r != nil {
		panic(r)
	}
}

// disarm ends a guard that stayed armed while a caller's function ran, as body tells: what panics there is none of our
// business. It must be deferred directly.
func (tx *Tx) disarm(armed bool, body *bool, err *error) {
	debug.SetPanicOnFault(armed)
	if *body {
		return
	}
	if r := recover(); isFault(r) {
		*err = tx.died(r)
	} else if r != nil {
		panic(r)
	}
}

// died makes the transaction dead, like one that met any other damage: it saw only a part of what it asked for.
func (tx *Tx) died(fault any) error {
	tx.dead = cutShort(tx.db, fault)
	return tx.dead
}

// guarded runs fn, which belongs to no transaction, under the guard.
func (db *DB) guarded(fn func() error) (err error) {
	armed := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(armed)
		if r := recover(); isFault(r) {
			err = cutShort(db, r)
		} else if r != nil {
			panic(r)
		}
	}()
	return fn()
}

func cutShort(db *DB, fault any) error {
	return badfile.At(db.store.Path(), -1, "file was cut short while it was mapped: %v", fault)
}

// isFault says whether a recovered value is a runtime error for an address that could not be read.
func isFault(r any) bool {
	fault, ok := r.(interface{ Addr() uintptr })
	if !ok {
		return false
	}
	_, ok = r.(runtime.Error)
	return ok && fault.Addr() != 0
}
