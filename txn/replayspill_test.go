package txn

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/vfs"
)

// stuckMain is a file system on which the n-th write to a main file fails, and those after it.
type stuckMain struct {
	vfs.FS
	left atomic.Int64
}

func (f *stuckMain) Open(name string, flag vfs.Flag) (vfs.File, error) {
	file, err := f.FS.Open(name, flag)
	if err == nil && !strings.Contains(name, "-wal-") {
		file = &stuckFile{file, f}
	}
	return file, err
}

type stuckFile struct {
	vfs.File
	fs *stuckMain
}

func (f *stuckFile) WriteAt(b []byte, off int64) (int, error) {
	if f.fs.left.Add(-1) < 0 {
		return 0, errStuck
	}
	return f.File.WriteAt(b, off)
}

// TestReplaySpillsBesideItself: a small cache, several buffers that visit each leaf, and writes that
// fail at any of them. Open then returns the error, and the next one replays the log.
func TestReplaySpillsBesideItself(t *testing.T) {
	const n = 10_000
	for _, inline := range []bool{false, true} {
		path, _ := killedWithLog(t, n)
		o := testOptions(vfs.OS)
		o.Inline, o.CacheBytes, o.CheckpointBytes = inline, 1<<20, 1<<40
		failed := 0
		for writes := int64(0); ; writes += 1 + writes/2 {
			fs := &stuckMain{FS: vfs.OS}
			fs.left.Store(writes)
			o.FS = fs
			s, err := Open(path, o)
			if err != nil {
				require.ErrorIs(t, err, errStuck)
				failed++
				continue
			}
			require.Equal(t, n/50, s.Recovery().CommitsReplayed)
			require.Greater(t, s.pg.Alloc.FileBytes(), 2*o.CacheBytes, "pages are spilled")
			require.Less(t, s.pg.Alloc.FileBytes(), int64(n*200*2), "freed pages are reused")
			requireLogRows(t, s, n)
			requireSound(t, s)
			fs.left.Store(1 << 40)
			require.NoError(t, s.Close())
			break
		}
		require.Greater(t, failed, 3)
	}
}
