package txn

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/internal/vfs"
)

// mainReads counts the calls that read the main file.
type mainReads struct {
	vfs.FS
	n atomic.Int64
}

func (f *mainReads) Open(name string, flag vfs.Flag) (vfs.File, error) {
	file, err := f.FS.Open(name, flag)
	if err == nil && !strings.Contains(name, "-wal-") {
		file = &mainRead{file, f}
	}
	return file, err
}

type mainRead struct {
	vfs.File
	fs *mainReads
}

func (r *mainRead) ReadAt(p []byte, off int64) (int, error) {
	r.fs.n.Add(1)
	return r.File.ReadAt(p, off)
}

// TestBatchesReadLeavesOnce: a batch reads each cold leaf once, by a read call, at the change
// itself and not through the map; a single put reads through the map. Leaves that a deletion has
// read without changing them are read through the map from then on.
func TestBatchesReadLeavesOnce(t *testing.T) {
	racetest.OneGoroutine(t)
	const rows = 20_000
	for _, manyFrom := range []int{1 << 30, 2} {
		t.Run(fmt.Sprint(manyFrom), func(t *testing.T) {
			fs := &mainReads{FS: vfs.OS}
			o := testOptions(fs)
			o.Inline, o.Choose, o.ManyFrom = false, nil, manyFrom
			o.CacheBytes, o.CheckpointBytes = 64<<20, 1<<30
			path := t.TempDir() + "/a.ebb"
			s, err := Open(path, o)
			require.NoError(t, err)
			want := fillTree(t, s, rows)
			require.NoError(t, s.Close())
			s = openTest(t, path, o)
			if !s.pg.Mapped() {
				t.Skip("no maps here")
			}
			update(t, s, func(tx *Tx) { // starts the log, and reads some leaves
				mustPut(t, tx, 9, batchKey(0), []byte("alone"), 0)
				want[string(batchKey(0))] = "alone"
			})
			some := func(from, step int, change func(c *Change)) (reads int64) {
				var changes []Change
				for i := from; i < rows; i += step {
					c := Change{Key: batchKey(i)}
					change(&c)
					changes = append(changes, c)
				}
				before := fs.n.Load()
				update(t, s, func(tx *Tx) { require.NoError(t, tx.Apply(9, changes, nil)) })
				return fs.n.Load() - before
			}
			require.Zero(t, some(10, 2000, func(c *Change) {
				c.Value = []byte("few")
				want[string(c.Key)] = "few"
			}))
			absent := func(c *Change) { c.Key, c.Delete = append(c.Key, 'x'), true }
			require.Greater(t, some(1, 140, absent), int64(30))
			require.Zero(t, some(1, 140, absent), "these leaves have been met")
			deleted := some(2, 140, func(c *Change) {
				c.Delete = true
				delete(want, string(c.Key))
			})
			require.Greater(t, deleted, int64(10))
			put := some(3, 140, func(c *Change) {
				c.Value = []byte("many")
				want[string(c.Key)] = "many"
			})
			require.Greater(t, put, int64(3))
			require.Less(t, put, int64(50), "those that were changed have frames")
			view(t, s, func(tx *Tx) { require.Equal(t, want, contents(t, tx, 9)) })
			require.NoError(t, s.Close())
			s = openTest(t, path, o)
			view(t, s, func(tx *Tx) { require.Equal(t, want, contents(t, tx, 9)) })
		})
	}
}
