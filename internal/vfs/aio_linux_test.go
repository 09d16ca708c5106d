package vfs

import (
	"bytes"
	"errors"
	"io/fs"
	"path/filepath"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// openDirect gives a file of some size, and a second handle for direct writes; where there are none
// the test is skipped.
func openDirect(t *testing.T) (plain, direct *osFile) {
	name := filepath.Join(t.TempDir(), "a")
	f, err := OS.Open(name, Write|Create)
	require.NoError(t, err)
	t.Cleanup(func() { _ = f.Close() })
	require.NoError(t, f.Truncate(1<<20))
	d, err := OS.Open(name, Write|Direct)
	if errors.Is(err, ErrNoDirect) {
		t.Skip("no direct writes here")
	}
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.Close() })
	return f.(*osFile), d.(*osFile)
}

// TestStartedWritesDoNotWait where the system has the call: they are on their way when it returns,
// several at a time, and what serves one of them serves the next.
func TestStartedWritesDoNotWait(t *testing.T) {
	plain, direct := openDirect(t)
	first := startWrite(direct.f, AlignedBuffer(4096), 0)
	if first == nil {
		var context uint
		_, _, errno := unix.Syscall(unix.SYS_IO_SETUP, 1, uintptr(unsafe.Pointer(&context)), 0)
		require.NotZero(t, errno, "the system has them")
		t.Skip("no writes that go on by themselves here: ", errno)
	}
	n, err := first.Wait()
	require.NoError(t, err)
	require.Equal(t, 4096, n)
	const crowd, each = 4, 20
	var writers sync.WaitGroup
	for w := range crowd {
		writers.Go(func() {
			p := AlignedBuffer(8192)
			for i := range each {
				for j := range p {
					p[j] = byte(w*each + i)
				}
				begun := startWrite(direct.f, p, int64(w*each+i)*8192)
				if begun == nil {
					t.Error("it is not begun")
					return
				}
				if n, err := begun.Wait(); n != len(p) || err != nil {
					t.Errorf("%d bytes of %d, %v", n, len(p), err)
				}
			}
		})
	}
	writers.Wait()
	idleAIO.mu.Lock()
	kept := len(idleAIO.list)
	idleAIO.mu.Unlock()
	require.LessOrEqual(t, kept, crowd+1, "contexts are used again")
	got := make([]byte, 8192)
	for i := range crowd * each {
		require.NoError(t, ReadFull(plain, got, int64(i)*8192))
		require.Equal(t, bytes.Repeat([]byte{byte(i)}, 8192), got, "write %d", i)
	}
}

// TestStartedWriteTellsOfItsError, found when it was begun or when it was waited for.
func TestStartedWriteTellsOfItsError(t *testing.T) {
	_, direct := openDirect(t)
	p := AlignedBuffer(8192)
	_, err := direct.StartWriteAt(p, -8192).Wait()
	require.Error(t, err)
	_, err = direct.StartWriteAt(p[1:4097], 0).Wait()
	require.ErrorIs(t, err, ErrMisaligned)
	_, err = direct.StartWriteAt(p, 1<<62).Wait() // beyond what a file may be
	require.Error(t, err)
	n, err := direct.StartWriteAt(nil, 0).Wait()
	require.NoError(t, err)
	require.Zero(t, n)
	require.NoError(t, direct.Close())
	_, err = direct.StartWriteAt(p, 0).Wait()
	require.ErrorIs(t, err, fs.ErrClosed)
}
