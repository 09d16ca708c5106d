package txn

import (
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/pager"
)

// TestWorkerThatPanics: Apply panics in its caller, the panic names its origin, and the transaction
// can be rolled back.
func TestWorkerThatPanics(t *testing.T) {
	s := batchStore(t, false, 9000)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	var want map[string]string
	view(t, s, func(tx *Tx) { want = contents(t, tx, 9) })
	changes := someChanges(rand.New(rand.NewPCG(1, 9)), 2000, 9000)
	for range 20 {
		tx := begin(t, s, true)
		func() {
			defer func() {
				said, ok := recover().(string)
				require.True(t, ok)
				require.Contains(t, said, "index out of range")
				require.Contains(t, said, "(*worker).apply")
			}()
			_ = tx.Apply(9, changes, make([]Info, 1000)) // too few of them
		}()
		require.Nil(t, s.w.allocMu)
		tx.Rollback()
		view(t, s, func(tx *Tx) { require.Equal(t, want, contents(t, tx, 9)) })
	}
}

// TestWorkerThatReadsADamagedPage: the transaction fails, and none of its changes stay.
func TestWorkerThatReadsADamagedPage(t *testing.T) {
	for _, inline := range []bool{true, false} {
		disk := crashfs.New(crashfs.Options{})
		o := testOptions(disk)
		o.ManyFrom, o.Inline, o.Choose, o.CacheBytes = 2, inline, nil, 4<<20
		s := mustOpen(t, o)
		want := fillTree(t, s, 9000)
		require.NoError(t, s.Close())
		size := disk.Used()
		f, err := disk.Open("/a.ebb", vfs.Write)
		require.NoError(t, err)
		leaves := 0
		for at := int64(2 * 4096); at+4096 <= size; at += 4096 {
			b := make([]byte, 4096)
			_ = vfs.ReadFull(f, b, at)
			if h := pager.ReadHeader(b); h.Kind != pager.KindLeaf || h.Count < 20 {
				continue
			}
			if leaves++; leaves%20 == 0 {
				_, err := f.WriteAt([]byte("damaged"), at+100)
				require.NoError(t, err)
			}
		}
		require.NoError(t, f.Close())
		s = mustOpen(t, o)
		tx := begin(t, s, true)
		changes := someChanges(rand.New(rand.NewPCG(1, 9)), 4000, 9000)
		err = tx.Apply(9, changes, nil)
		for i := 0; err == nil && i < 3; i++ {
			err = tx.Apply(9, changes, nil)
		}
		require.ErrorIs(t, err, badfile.ErrCorrupt)
		require.ErrorIs(t, tx.Err(), badfile.ErrCorrupt)
		require.ErrorIs(t, tx.Commit(Sync), badfile.ErrCorrupt)
		tx.Rollback()
		require.NoError(t, s.failure())
		read := 0
		for key := range want {
			view(t, s, func(tx *Tx) { // it fails at the damaged page
				if v, _, found, err := tx.Get(9, []byte(key)); err == nil {
					require.True(t, found && string(v) == "value")
					read++
				}
			})
		}
		require.Greater(t, read, 5000)
		require.NoError(t, s.Close())
	}
}

// TestWorkerWhoseReadFails: one failed read aborts the transaction, though a retry would succeed: the
// change of the worker may be half done.
func TestWorkerWhoseReadFails(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	disk := crashfs.New(crashfs.Options{})
	o := testOptions(disk)
	o.ManyFrom, o.Inline, o.Choose, o.CacheBytes = 2, false, nil, 4<<20
	s, err := Open("/a.ebb", o)
	require.NoError(t, err)
	fillTree(t, s, 9000)
	require.NoError(t, s.Close())
	s, err = Open("/a.ebb", o)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	update(t, s, func(tx *Tx) { _, err = tx.Put(9, batchKey(0), []byte("value"), 0) }) // starts the log
	require.NoError(t, err)
	tx := begin(t, s, true)
	in := disk.Inject(crashfs.Fault{Kinds: crashfs.KindRead, N: 30})
	err = tx.Apply(9, someChanges(rand.New(rand.NewPCG(1, 9)), 4000, 9000), nil)
	require.Equal(t, 1, in.Fired())
	require.True(t, s.w.parallel.applied)
	require.ErrorIs(t, err, pager.ErrRead)
	require.ErrorIs(t, tx.Commit(Sync), pager.ErrRead)
	tx.Rollback()
	view(t, s, func(tx *Tx) {
		got := contents(t, tx, 9)
		require.Len(t, got, 9000)
		for _, value := range got {
			require.Equal(t, "value", value)
		}
	})
}
