package mapfault

import (
	"errors"
	"fmt"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
)

// fault is what the runtime panics with when memory cannot be read and the guard is armed.
type fault struct{ addr uintptr }

func (f fault) Error() string { return fmt.Sprintf("fault at %#x", f.addr) }
func (f fault) RuntimeError() {}
func (f fault) Addr() uintptr { return f.addr }

// foreign has an address, and is nothing that the runtime throws.
type foreign struct{}

func (foreign) Addr() uintptr { return 1 << 20 }

func TestGuard(t *testing.T) {
	mine := errors.New("mine")
	says := func(addr uintptr) error { return fmt.Errorf("at %#x", addr) }
	require.NoError(t, Guard(says, func() error { return nil }))
	require.ErrorIs(t, Guard(says, func() error { return mine }), mine)
	require.EqualError(t, Guard(says, func() error { panic(fault{0x70001000}) }), "at 0x70001000")
	for _, other := range []any{"text", mine, fault{0}, foreign{}} {
		require.PanicsWithValue(t, other, func() { _ = Guard(says, func() error { panic(other) }) })
	}
	armed := debug.SetPanicOnFault(false)
	require.False(t, armed, "a guard leaves the goroutine as it was")
	require.NoError(t, Guard(says, func() error {
		require.True(t, debug.SetPanicOnFault(true))
		return nil
	}))
}
