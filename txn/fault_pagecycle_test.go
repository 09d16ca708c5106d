package txn

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/pager"
)

// linkTwice makes b a branch whose two children, below and from "m" on, are the same page:
// docs/format.md, 4.
func linkTwice(b []byte, h pager.Header, child pager.Ref) {
	le := binary.LittleEndian
	h.Kind, h.Count = pager.KindBranch, 2
	pager.WriteHeader(b, h)
	sep := len(b) - 1
	b[sep] = 'm'
	le.PutUint32(b[24:], uint32(sep)) // lo
	le.PutUint64(b[40:], 'm'<<56)     // the second head
	for i := range 2 {
		e := b[48+24*i:]
		le.PutUint64(e, uint64(child.Pgid))
		le.PutUint64(e[8:], 1) // row
		le.PutUint32(e[16:], uint32(child.Epoch))
		if i == 1 {
			le.PutUint16(e[20:], uint16(sep))
			le.PutUint16(e[22:], 1)
		}
	}
}

// foldedTree is a forged store whose tree 9 reaches one leaf by 2^30 paths through valid pages.
func foldedTree(t *testing.T) (*Store, *crashfs.Disk) {
	disk := crashfs.New(crashfs.Options{})
	s := mustOpen(t, testOptions(disk))
	update(t, s, func(tx *Tx) {
		require.NoError(t, tx.Create(8))
		require.NoError(t, tx.Create(9))
		mustPut(t, tx, 8, []byte("k"), nil, 0)
		leaf, _ := tx.w.trees.get(8)
		ref := leaf.Root
		for level := uint8(1); level <= 30; level++ {
			next, b, err := tx.w.New(pager.KindBranch, level)
			require.NoError(t, err)
			linkTwice(b, pager.Header{Pgid: next.Pgid, Epoch: next.Epoch, Level: level}, ref)
			require.NoError(t, tree.CheckPage(b, len(b)))
			ref = next
		}
		tx.w.set(9, tree.Tree{Root: ref, Depth: 31, Rows: 2})
	})
	return s, disk
}

// TestTreeThatReachesAPageManyTimesIsDamage: neither the deletion of its half nor the relocation of
// its pages runs without a bound.
func TestTreeThatReachesAPageManyTimesIsDamage(t *testing.T) {
	s, _ := foldedTree(t)
	tx := begin(t, s, true)
	_, err := tx.DeleteRange(9, []byte("a"), nil)
	require.ErrorIs(t, err, badfile.ErrCorrupt)
	tx.Rollback()

	r := relocation{s: s, limit: pager.Pgid(s.pg.Alloc.Pages())} // nothing to move, and a look at all
	require.NoError(t, s.lockWriter(t.Context()))
	_, err = r.step(1 << 30)
	s.unlockWriter()
	require.ErrorIs(t, err, badfile.ErrCorrupt)
	require.NoError(t, s.Checkpoint(t.Context()))
	_ = s.Close() // It may say so, too; what counts is that it ends.
}
