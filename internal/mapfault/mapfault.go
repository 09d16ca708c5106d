package mapfault

import (
	"runtime"
	"runtime/debug"
)

// Address says whether a recovered value is a runtime error for an address that could not be read,
// and gives the address.
func Address(r any) (addr uintptr, ok bool) {
	fault, ok := r.(interface{ Addr() uintptr })
	if !ok {
		return 0, false
	}
	if _, ok = r.(runtime.Error); !ok || fault.Addr() == 0 {
		return 0, false // A nil pointer is a mistake of ours.
	}
	return fault.Addr(), true
}

// Guard runs fn. If a fault ends it, the error is what says makes of the address; every other panic
// goes on unchanged.
func Guard(says func(addr uintptr) error, fn func() error) (err error) {
	armed := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(armed)
		r := recover()
		if addr, ok := Address(r); ok {
			err = says(addr)
		} else if r != nil {
			panic(r)
		}
	}()
	return fn()
}
