package kv_test

import (
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/crashfs"
)

// TestShortWritesAreFinished lets each write of a session fall short in turn, with and without an
// error that says so: no call notices.
func TestShortWritesAreFinished(t *testing.T) {
	want := lastState(t)
	for _, cause := range []error{nil, io.ErrShortWrite} {
		fired := 1
		for n := 0; fired > 0; n += stride(5) {
			disk := crashfs.New(crashfs.Options{Untraced: true})
			in := disk.Inject(crashfs.Fault{Do: crashfs.Short, N: n, Err: cause})
			s, err := openSession(disk)
			require.NoError(t, err, "write %d", n)
			require.NoError(t, s.run(), "write %d", n)
			if fired = in.Fired(); fired == 0 {
				require.Greater(t, n, 50)
			}
			db, err := reopenAt(disk, newClock(), nil)
			require.NoError(t, err, "write %d", n)
			_, all, err := stored(db)
			require.NoError(t, err, "write %d", n)
			require.True(t, want == all, "write %d: something else is stored", n)
			require.NoError(t, db.Close())
		}
	}
}

// TestWritesOfNothingAreErrors lets each write of a session write nothing and claim success, once
// and from then on: the call ends, with an error, and nothing that was acknowledged is lost.
func TestWritesOfNothingAreErrors(t *testing.T) {
	states := sessionStates(t)
	for _, sticky := range []bool{false, true} {
		for n := 0; ; n += stride(5) {
			disk := crashfs.New(crashfs.Options{Untraced: true})
			s, err := openSession(disk)
			require.NoError(t, err)
			in := disk.Inject(crashfs.Fault{Do: crashfs.Zero, N: n, Sticky: sticky})
			err = s.run()
			if in.Fired() == 0 {
				require.NoError(t, err)
				require.Greater(t, n, 50)
				break
			}
			if err == nil {
				// The log readies its next segment, and notes what is durable, when its duty is
				// done.
				require.Equal(t, "close", s.step)
			} else {
				require.ErrorIs(t, err, io.ErrShortWrite, "write %d in %s", n, s.step)
			}
			in.Disarm()
			_ = s.db.Close()
			requireState(t, disk, states, s.acked, s.begun, fmt.Sprintf("write %d of nothing in %s", n, s.step))
		}
	}
}
