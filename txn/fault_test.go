package txn

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/mapfault"
	"github.com/ebbkv/ebb/internal/platformtest"
	"github.com/ebbkv/ebb/internal/vfs"
)

// noSecondSegment refuses the second log segment once.
type noSecondSegment struct {
	vfs.FS
	made int
}

func (f *noSecondSegment) Open(name string, flag vfs.Flag) (vfs.File, error) {
	if flag&vfs.Create != 0 && strings.Contains(name, "-wal-") {
		if f.made++; f.made == 2 {
			return nil, vfs.ErrNoSpace
		}
	}
	return f.FS.Open(name, flag)
}

// TestFaultInTheCheckpointOfABulkLoad: what was loaded is the newest version by then, and no log
// has it. The file is cut short when a segment is made for the checkpoint, before that reads the
// table of trees: none could be made beside the load.
func TestFaultInTheCheckpointOfABulkLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.ebb")
	platformtest.NeedsMap(t)
	o := testOptions(vfs.OS)
	rnd, cut := o.Rand, false
	o.Rand = func() uint64 {
		if cut {
			platformtest.MayRefuse(t, os.Truncate(path, 2*4096), "windows")
		}
		return rnd()
	}
	s, err := Open(path, o)
	require.NoError(t, err)
	update(t, s, func(tx *Tx) { require.NoError(t, tx.Create(9)) })
	require.NoError(t, s.Close())

	o.FS = &noSecondSegment{FS: vfs.OS}
	s, err = Open(path, o)
	require.NoError(t, err)
	err = mapfault.Guard(s.Fault, func() error {
		_, err := s.bulkLoad(t.Context(), nil, 9, func(yield func(k, v []byte) bool) {
			for k, v := range rowsUpTo(100) {
				if !yield(k, v) {
					return
				}
			}
			cut = true
		})
		return err
	})
	require.ErrorIs(t, err, badfile.ErrCorrupt)
	require.ErrorIs(t, s.canWrite(), ErrFailed)
	_, err = s.Begin(t.Context(), true)
	require.ErrorIs(t, err, ErrFailed)
	require.Error(t, s.Close())
}
