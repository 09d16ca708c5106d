package txn

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/pager"
)

// Places in a branch page, as docs/format.md has them.
const (
	branchHeads = 32
	branchChild = 24
)

// forge changes pages of the main file of a closed store, as an attacker does that knows the format:
// change reports whether it changed the page, and forge then sets the checksum.
func forge(t *testing.T, fsys vfs.FS, path string, change func(id pager.Pgid, b []byte) bool) {
	t.Helper()
	f, err := fsys.Open(path, vfs.Write)
	require.NoError(t, err)
	size, err := f.Size()
	require.NoError(t, err)
	var salt uint64
	forged := 0
	for off := int64(0); off < size; off += 4096 {
		b := make([]byte, 4096)
		require.NoError(t, vfs.ReadFull(f, b, off))
		if off == 0 {
			salt = pager.Salt([16]byte(b[56:]))
		}
		if change(pager.Pgid(off/4096), b) {
			pager.SetChecksum(b, salt)
			require.NoError(t, vfs.WriteFull(f, b, off))
			forged++
		}
	}
	require.NoError(t, f.Close())
	require.Equal(t, 1, forged, "pages forged")
}

// forgeTwoParents makes a store with tree 9, of rows key00000 to key00039, whose branch names its
// first leaf twice.
func forgeTwoParents(t *testing.T, fsys vfs.FS, path string) {
	t.Helper()
	s, err := Open(path, testOptions(fsys))
	require.NoError(t, err)
	update(t, s, func(tx *Tx) {
		require.NoError(t, tx.Create(9))
		for i := range 40 {
			mustPut(t, tx, 9, fmt.Appendf(nil, "key%05d", i), make([]byte, 300), 0)
		}
	})
	require.NoError(t, s.Close())
	forge(t, fsys, path, func(_ pager.Pgid, b []byte) bool {
		h := pager.ReadHeader(b)
		if h.Kind != pager.KindBranch {
			return false
		}
		children := b[branchHeads+8*int(h.Count):]
		copy(children[branchChild:], children[:8])
		copy(children[branchChild+16:], children[16:20])
		return true
	})
}

// TestPageOfTwoParentsIsNotFreedTwice: the file has a branch that names one leaf twice. A
// transaction that changes it by both ways is refused before anything is logged. It was logged and
// the store failed after it, and again after each opening.
func TestPageOfTwoParentsIsNotFreedTwice(t *testing.T) {
	fsys := vfs.NewMemory()
	forgeTwoParents(t, fsys, "/a.ebb")
	s := mustOpen(t, testOptions(fsys))
	tx, err := s.Begin(t.Context(), true)
	require.NoError(t, err)
	for _, key := range []string{"key00000", "key00015"} {
		mustPut(t, tx, 9, []byte(key), []byte("changed"), 0)
	}
	require.ErrorIs(t, tx.Commit(Sync), badfile.ErrCorrupt)
	require.NoError(t, s.failure(), "nothing has been written")
	update(t, s, func(tx *Tx) { // The rest of the store goes on,
		mustPut(t, tx, CatalogTree, []byte("k"), []byte("v"), 0)
		// and so does the tree, by one of the ways.
		mustPut(t, tx, 9, []byte("key00000"), []byte("changed"), 0)
	})
	require.NoError(t, s.Checkpoint(t.Context()))
	require.NoError(t, s.Close())
	s = mustOpen(t, testOptions(fsys))
	require.NoError(t, s.Close())
}

// TestDroppedTreeWithAPageOfTwoParents is freed by no checkpoint, and the store takes commits
// nevertheless. It failed in the checkpoint.
func TestDroppedTreeWithAPageOfTwoParents(t *testing.T) {
	fsys := vfs.NewMemory()
	forgeTwoParents(t, fsys, "/a.ebb")
	s := mustOpen(t, testOptions(fsys))
	update(t, s, func(tx *Tx) { require.NoError(t, tx.Drop(9)) })
	require.ErrorIs(t, s.Checkpoint(t.Context()), badfile.ErrCorrupt)
	update(t, s, func(tx *Tx) { require.NoError(t, tx.Create(10)) })
	require.NoError(t, s.failure())
	require.ErrorIs(t, s.Close(), badfile.ErrCorrupt, "the log stays")
}

// TestReusedPageIsNotFreedByItsStaleReference: a leaf that the file references twice is freed through
// one reference, and becomes a page of another tree. A transaction that freed it through the other
// reference, without reading it, freed the other tree's page.
func TestReusedPageIsNotFreedByItsStaleReference(t *testing.T) {
	fsys := vfs.NewMemory()
	forgeTwoParents(t, fsys, "/a.ebb")
	s := mustOpen(t, testOptions(fsys))
	used := func() *pager.UsedSet {
		_ = s.lockWriter(nil)
		defer s.unlockWriter()
		u, err := s.pg.Alloc.Used()
		require.NoError(t, err)
		return u
	}
	before := used()
	put := func(id TreeID, from, to int) {
		update(t, s, func(tx *Tx) {
			for i := from; i < to; i++ {
				mustPut(t, tx, id, fmt.Appendf(nil, "key%05d", i), make([]byte, 300), 0)
			}
		})
	}
	put(9, 0, 1)
	update(t, s, func(tx *Tx) { require.NoError(t, tx.Create(10)) })
	for i := range 3 {
		require.NoError(t, s.Checkpoint(t.Context()))
		put(10, 40*i, 40*i+40)
	}
	born := 0
	before.Diff(before.Empty(), func(id pager.Pgid, _ bool) bool {
		if id >= 2 && s.pg.Pool.Owner(id) != 0 {
			born++
		}
		return true
	})
	require.Positive(t, born, "pages of the file that are others now")
	tx := begin(t, s, true)
	_, err := tx.DeleteRange(9, nil, nil)
	require.ErrorIs(t, err, badfile.ErrCorrupt)
	tx.Rollback()
	require.NoError(t, s.Failed())
	put(10, 0, 400)
	tx = begin(t, s, false)
	require.Len(t, contents(t, tx, 10), 400)
	tx.Rollback()
	require.NoError(t, s.Close())
}

// TestMetaPageCountersAreVerified: the meta page stores the lowest unused number of a tree, and of a
// dropped one. The numbers in the tree table must be below, or the next tree gets the number of an
// existing one.
func TestMetaPageCountersAreVerified(t *testing.T) {
	forgeMeta := func(at int, n uint64) (*Store, error) {
		fsys := vfs.NewMemory()
		s := mustOpen(t, testOptions(fsys))
		update(t, s, func(tx *Tx) {
			require.NoError(t, tx.Create(9))
			mustPut(t, tx, 9, []byte("k"), []byte("v"), 0)
		})
		require.NoError(t, s.Close())
		forge(t, fsys, "/a.ebb", func(_ pager.Pgid, b []byte) bool {
			clean := pager.ReadHeader(b).Kind == pager.KindMeta && b[36]&1 != 0
			if clean {
				binary.LittleEndian.PutUint64(b[at:], n)
			}
			return clean
		})
		return Open("/a.ebb", testOptions(fsys))
	}
	const nextTree, nextTrash = 144, 168
	for _, n := range []uint64{0, 3, 9} {
		_, err := forgeMeta(nextTree, n)
		require.ErrorIs(t, err, badfile.ErrCorrupt, n)
	}
	s, err := forgeMeta(nextTree, 10)
	require.NoError(t, err)
	require.NoError(t, s.Close())

	s, err = forgeMeta(nextTrash, 1<<62-1)
	require.NoError(t, err)
	tx := begin(t, s, true)
	require.ErrorIs(t, tx.Drop(9), badfile.ErrCorrupt, "there is no number for it")
	tx.Rollback()
	require.NoError(t, s.Close())
}

// TestDroppedTreeAboveTheMetaPageCounter would be overwritten by the next one, and its pages would
// leak.
func TestDroppedTreeAboveTheMetaPageCounter(t *testing.T) {
	s, disk := someTrees(t)
	require.NoError(t, s.Checkpoint(t.Context()))
	update(t, s, func(tx *Tx) { require.NoError(t, tx.Drop(9)) })
	_ = s.lockWriter(nil)
	s.head.trash = 0
	err := s.checkpointer.runLocked() // with the tree in the trash
	s.unlockWriter()
	require.NoError(t, err)
	s.log.Fail(errors.New("the test has ended it"))
	_ = s.Close()
	_, err = Open("/a.ebb", smallOptions(disk))
	require.ErrorIs(t, err, badfile.ErrCorrupt)
	require.ErrorContains(t, err, "trash from 0 on")
}
