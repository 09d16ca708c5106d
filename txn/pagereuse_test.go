package txn

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/pager"
)

// watchedFS reports each write to the main file, and each punch.
type watchedFS struct {
	vfs.FS
	wrote   func(off, n int64)
	punched func(off, n int64)
}

type watchedFile struct {
	vfs.File
	fs *watchedFS
}

func (fs *watchedFS) Open(name string, flag vfs.Flag) (vfs.File, error) {
	f, err := fs.FS.Open(name, flag)
	if err != nil || !strings.HasSuffix(name, ".ebb") {
		return f, err
	}
	return &watchedFile{f, fs}, nil
}

func (f *watchedFile) WriteAt(p []byte, off int64) (int, error) {
	if f.fs.wrote != nil {
		f.fs.wrote(off, int64(len(p)))
	}
	return f.File.WriteAt(p, off)
}

func (f *watchedFile) PunchHole(off, n int64) error {
	if f.fs.punched != nil {
		f.fs.punched(off, n)
	}
	return f.File.PunchHole(off, n)
}

// rewriteInSteps is rewrite with a transaction for every fifty rows, so that pages come back in
// between.
func rewriteInSteps(t *testing.T, s *Store, value string) {
	for from := 0; from < 4000; from += 50 {
		update(t, s, func(tx *Tx) {
			for i := from; i < from+50; i++ {
				mustPut(t, tx, 9, fmt.Appendf(nil, "%04d", i), fmt.Appendf(nil, "%900s", value), 0)
			}
		})
	}
}

// overwritten is a store of some 1,150 pages, all of them replaced since its last checkpoint, and the
// pages that the checkpoint reaches. The reader began before they were replaced.
func overwritten(t *testing.T, fs vfs.FS) (s *Store, reached map[int64]bool, reader *Tx) {
	o := testOptions(fs)
	o.CacheBytes, o.CheckpointBytes = 16<<20, 1<<30
	s = openTest(t, "/a.ebb", o)
	update(t, s, func(tx *Tx) { require.NoError(t, tx.Create(9)) })
	rewrite(t, s, "first")
	require.NoError(t, s.Checkpoint(t.Context()))
	reached = used(t, s)
	require.Greater(t, len(reached), 1000)
	reader, err := s.Begin(t.Context(), false)
	require.NoError(t, err)
	rewriteInSteps(t, s, "second")
	return s, reached, reader
}

// used are the pages of the newest state, but for meta pages.
func used(t *testing.T, s *Store) map[int64]bool {
	ids := map[int64]bool{}
	for id := int64(2); id < int64(s.pg.Alloc.Pages()); id++ {
		in, err := s.pg.Alloc.InUse(pager.Pgid(id))
		require.NoError(t, err)
		if in {
			ids[id] = true
		}
	}
	return ids
}

// TestPagesOfTheOlderVersionAreReusedEarly: changes beside a checkpoint allocate them, and not pages
// at the end of the file.
func TestPagesOfTheOlderVersionAreReusedEarly(t *testing.T) {
	s, reached, reader := overwritten(t, vfs.NewMemory())
	reader.Rollback()
	pages := s.pg.Alloc.Pages()
	for _, value := range []string{"third", "fourth", "fifth"} {
		early := uint64(0)
		checkpointBy(t, s, func() { rewriteInSteps(t, s, value) },
			func() { early = s.pg.Alloc.ReusableInUse() })
		require.Greater(t, early, uint64(len(reached)*8/10))
	}
	require.Less(t, s.pg.Alloc.Pages(), pages+uint64(len(reached))/4,
		"the leaves are there twice, not three times")
	view(t, s, func(tx *Tx) { requireAll(t, tx, "fifth") })
}

// TestPagesOfTheOlderVersionAreNotOverwritten as long as a crash would start from it: neither by the
// checkpoint, nor beside it by more pages than frames, large values or leaf runs.
func TestPagesOfTheOlderVersionAreNotOverwritten(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	fs := &watchedFS{FS: vfs.NewMemory()}
	s, reached, reader := overwritten(t, fs)
	reader.Rollback()
	writes := 0
	fs.wrote = func(off, n int64) {
		for id := off / 4096; id < (off+n+4095)/4096; id++ {
			require.False(t, reached[id], "page %d", id)
			require.False(t, s.pg.Alloc.IsReusable(pager.Pgid(id)), "page %d", id)
			writes++
		}
	}
	within := func(what func()) {
		t.Helper()
		before := writes
		what()
		require.Greater(t, writes, before)
	}
	checkpointBy(t, s, func() {
		rewriteInSteps(t, s, "third")
		within(func() {
			s.o.CacheBytes = s.pg.Pool.FrameBytes() + 1<<20 // so that it has to spill, and has pages early
			rewrite(t, s, "fourth")
			s.o.CacheBytes = 16 << 20
		})
		within(func() {
			update(t, s, func(tx *Tx) {
				for i := range 5 {
					mustPut(t, tx, 9, fmt.Appendf(nil, "large %d", i), make([]byte, 4000<<i), 0)
				}
				for i := range 5 {
					mustDelete(t, tx, 9, fmt.Appendf(nil, "large %d", i))
				}
			})
		})
		appended := 0
		within(func() { // A bulk load waits for the checkpoint.
			for ; appended < 5000; appended += 1000 {
				require.NotZero(t, appendRows(t, s, appended, 1000))
			}
		})
	}, func() {
		require.NotZero(t, s.pg.Alloc.ReusableInUse())
		crashed := openTest(t, "/a.ebb", testOptions(copyFiles(t, fs.FS)))
		view(t, crashed, func(tx *Tx) { requireAll(t, tx, "fourth") })
	})
	fs.wrote = nil
	require.NoError(t, s.Checkpoint(t.Context()))
	view(t, s, func(tx *Tx) { requireAll(t, tx, "fourth") })
}

// TestReplayHasSpaceAfterACrash: the next open starts from the older version, all of whose pages are
// in use, and finds as many others in the file as the newest version needs: the disk may be full.
func TestReplayHasSpaceAfterACrash(t *testing.T) {
	s := openTest(t, "/a.ebb", func() Options {
		o := testOptions(vfs.NewMemory())
		o.CacheBytes, o.CheckpointBytes = 16<<20, 1<<30
		return o
	}())
	update(t, s, func(tx *Tx) { require.NoError(t, tx.Create(9)) })
	rewrite(t, s, "first")
	require.NoError(t, s.Checkpoint(t.Context()))
	var reached map[int64]bool
	put := func(from, to int, value string) {
		for ; from < to; from += 50 {
			update(t, s, func(tx *Tx) {
				for i := from; i < from+50; i++ {
					mustPut(t, tx, 9, fmt.Appendf(nil, "%04d", i), fmt.Appendf(nil, "%900s", value), 0)
				}
			})
			born := uint64(0)
			for id := range used(t, s) {
				if !reached[id] || s.pg.Alloc.IsReusable(pager.Pgid(id)) {
					born++
				}
			}
			require.LessOrEqual(t, born, s.pg.Alloc.Pages()-uint64(len(reached))-2)
		}
	}
	for round := range 2 {
		reached = used(t, s)
		put(0, 2000, fmt.Sprint("before ", round))
		early := uint64(0)
		checkpointBy(t, s, func() {
			put(2000, 4000, fmt.Sprint("new ", round)) // what the checkpoint has not got
			require.Less(t, s.pg.Alloc.ReusableInUse(), uint64(len(reached)/10))
			put(0, 2000, fmt.Sprint("again ", round)) // what it has
			early = s.pg.Alloc.ReusableInUse()
		}, func() {})
		require.Greater(t, early, uint64(len(reached)/3))
		require.NoError(t, s.Checkpoint(t.Context()))
	}
}

// TestNoPageIsReusedBeforeItsCheckpointBegins: an epoch can end without a checkpoint. Pages freed in
// it belong to the last durable version until a checkpoint has ended.
func TestNoPageIsReusedBeforeItsCheckpointBegins(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	fs := &watchedFS{FS: vfs.NewMemory()}
	s, _, reader := overwritten(t, fs)
	reader.Rollback()
	reached := used(t, s)
	reader, err := s.Begin(t.Context(), false)
	require.NoError(t, err)
	checkpointBy(t, s, func() { rewriteInSteps(t, s, "beside") }, func() {})
	require.NotZero(t, s.reclaimer.replacedPages)
	fs.wrote = func(off, n int64) {
		for id := off / 4096; id < (off+n+4095)/4096; id++ {
			require.False(t, reached[id], "page %d", id)
		}
	}
	for _, value := range []string{"third", "fourth"} {
		epoch := s.epoch
		_, err := s.bulkLoad(t.Context(), create(10), 10, func(yield func(key, value []byte) bool) {
			_ = yield([]byte("b"), make([]byte, 9000)) && yield([]byte("a"), nil)
		})
		require.ErrorIs(t, err, ErrOrder)
		require.Greater(t, s.epoch, epoch)
		reader.Rollback() // What was replaced waited for it.
		rewriteInSteps(t, s, value)
	}
	checkpointBy(t, s, func() {}, func() {
		crashed := openTest(t, "/a.ebb", testOptions(copyFiles(t, fs.FS)))
		view(t, crashed, func(tx *Tx) { requireAll(t, tx, "fourth") })
	})
	fs.wrote = nil
}
