package kv_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/internal/vfs"
)

// errBroken is the panic of a broken invariant.
var errBroken = errors.New("invariant broken")

// TestPanicInsideTheEngineLeavesTheFilesRight stops the engine with a panic before its n-th call of
// the disk, for every n of a session. The files are as a killed process leaves them: each commit
// that returned is there, the one that had begun is there whole or not at all. What the engine does
// while the panic unwinds it spoils nothing: the same holds for the files that it leaves if someone
// stops the panic.
func TestPanicInsideTheEngineLeavesTheFilesRight(t *testing.T) {
	states := sessionStates(t)
	n := 0
	for ; ; n += stride(3) {
		disk := vfs.NewMemory()
		var s *session
		left, calls, at := vfs.FS(nil), 0, ""
		fsys := &hookFS{disk, func(call, name string) error {
			if calls++; calls == n+1 {
				left, at = crashed(t, disk), fmt.Sprintf("call %d, %s of %s", n, call, name)
				panic(errBroken)
			}
			return nil
		}}
		s = &session{clock: newClock(), begun: 1}
		func() {
			defer func() {
				if r := recover(); r != nil {
					require.Equal(t, errBroken, r)
				}
			}()
			db, err := reopenAt(fsys, s.clock, nil)
			require.NoError(t, err)
			s.db, s.acked = db, 1
			require.NoError(t, s.run())
		}()
		if left == nil {
			break
		}
		lo := max(s.acked, 1) // An open that is killed may leave no store: the next one makes it.
		requireState(t, left, states, lo, s.begun, at)
		requireState(t, crashed(t, disk), states, lo, s.begun, at+", unwound")
	}
	require.Greater(t, n, 200)
}

// stride is 1, or with -short and under the race detector a sample of one in so many.
func stride(n int) int {
	if testing.Short() || racetest.Enabled {
		return n
	}
	return 1
}
