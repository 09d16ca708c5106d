package txn

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/pager"
)

// TestDamagedLeafRuns damages leaves in the file: for a durable record that is damage, for another
// one the end of the log.
func TestDamagedLeafRuns(t *testing.T) {
	for _, test := range []struct {
		name  string
		syncs func(s *Store) error
		hurt  int // which of the batches
		left  int // of them; -1: damage
	}{
		{"sound", nil, -1, 3},
		{"last", nil, 2, 2},
		{"second", nil, 1, 1},
		{"durable", func(s *Store) error { return s.Sync() }, 2, -1},
		{"in an earlier segment", func(s *Store) error { return afterRotate(s, nil) }, 1, 1},
		{"in an earlier segment that is durable",
			func(s *Store) error { return afterRotate(s, s.log.Sync) }, 1, -1},
	} {
		t.Run(test.name, func(t *testing.T) {
			disk := vfs.NewMemory()
			o := testOptions(disk)
			o.CheckpointBytes, o.NoMap = 1<<30, true
			s := mustOpen(t, o)
			update(t, s, func(tx *Tx) { require.NoError(t, tx.Apply(CatalogTree, inOrder(0, 50), nil)) })
			var first []pager.Pgid
			for i := range 3 {
				relaxed(t, s, func(tx *Tx) {
					at := tx.w.allocated.len()
					require.NoError(t, tx.Apply(CatalogTree, inOrder(50+300*i, 300), nil))
					tx.w.allocated.each(at, func(r pageRun) bool {
						if s.pg.Pool.Owner(r.id) == tx.w.firstOwner {
							first = append(first, r.id)
							return false
						}
						return true
					})
				})
			}
			require.Len(t, first, 3)
			if test.syncs != nil {
				require.NoError(t, test.syncs(s))
			}
			image := testOptions(copyFiles(t, disk))
			image.CheckpointBytes = 1 << 30
			_ = s.fail(errors.New("over"))
			require.Error(t, s.Close())
			if test.hurt >= 0 {
				f, err := image.FS.Open("/a.ebb", vfs.Write)
				require.NoError(t, err)
				_, err = f.WriteAt([]byte{0xff}, int64(first[test.hurt]+1)*DefaultPageSize+3000)
				require.NoError(t, err)
				require.NoError(t, f.Close())
			}
			for _, readOnly := range []bool{true, false} {
				image.ReadOnly = readOnly
				again, err := Open("/a.ebb", image)
				if test.left < 0 {
					require.ErrorIs(t, err, badfile.ErrCorrupt)
					continue
				}
				require.NoError(t, err)
				requireRows(t, again, 50+300*test.left)
				if test.left < 3 {
					require.Positive(t, again.Recovery().BytesDropped)
				}
				requireSound(t, again)
				require.NoError(t, again.Close())
			}
		})
	}
}

// TestLeafRunsInThePageCacheOnly: the sync of the main file fails, and the process exits. The next
// process in the same boot reads leaves that the disk does not have, and that no later sync would
// write: the rows that it shows stay nevertheless.
func TestLeafRunsInThePageCacheOnly(t *testing.T) {
	disk := crashfs.New(crashfs.Options{})
	o := testOptions(disk)
	o.CheckpointBytes = 1 << 30
	s := mustOpen(t, o)
	appendRows(t, s, 0, 50)
	require.Positive(t, appendRows(t, s, 50, 300))
	failed := disk.Inject(crashfs.Fault{Do: crashfs.Gate})
	require.ErrorIs(t, s.Sync(), crashfs.ErrIO)
	failed.Disarm()
	require.Error(t, s.Close())
	s = openTest(t, "/a.ebb", o)
	n := rows(t, s)
	require.Equal(t, 350, n, "nothing was lost yet")
	onCrash(t, disk, o, 3, func(s *Store) { requireRows(t, s, n) })
}

// TestInvalidLeafReferencesInTheLog replays forged records that reference existing leaves.
func TestInvalidLeafReferencesInTheLog(t *testing.T) {
	buildLeaf := func(t *testing.T, s *Store, fill func(b []byte)) (ref pager.Ref, sums []byte) {
		b := make([]byte, s.PageSize())
		pager.WriteHeader(b, pager.Header{Kind: pager.KindLeaf})
		fill(b)
		ref, err := s.pg.WriteLeafRun(s.epoch, 1, b, s.w.policy)
		require.NoError(t, err)
		return ref, binary.LittleEndian.AppendUint64(nil, pager.Checksum(b))
	}
	for name, test := range map[string]struct {
		fill func(b []byte)
		more func(payload []byte, ref pager.Ref, sums []byte) []byte
		want string
	}{
		"sound":     {fill: func(b []byte) { tree.FillLeaf(b, inOrder(1, 10)) }},
		"not above": {fill: func(b []byte) { tree.FillLeaf(b, inOrder(0, 10)) }, want: "not above all keys"},
		"empty": {fill: func(b []byte) { binary.LittleEndian.PutUint32(b[24:], uint32(len(b))) },
			want: "leaf"},
		"a branch": {fill: func(b []byte) {
			pager.WriteHeader(b,
				pager.Header{Kind: pager.KindBranch, Level: 1})
		}, want: "page"},
		"twice": {fill: func(b []byte) { tree.FillLeaf(b, inOrder(1, 10)) }, want: "in use",
			more: func(b []byte, ref pager.Ref, sums []byte) []byte {
				return appendLeaves(b, CatalogTree, ref, sums)
			}},
		"no tree": {fill: func(b []byte) { tree.FillLeaf(b, inOrder(1, 10)) }, want: "tree",
			more: func(b []byte, ref pager.Ref, sums []byte) []byte {
				return appendLeaves(b[:redoHead], 77, ref, sums)
			}},
	} {
		t.Run(name, func(t *testing.T) {
			disk := vfs.NewMemory()
			o := testOptions(disk)
			o.CheckpointBytes = 1 << 30
			s := mustOpen(t, o)
			update(t, s, func(tx *Tx) { require.NoError(t, tx.Apply(CatalogTree, inOrder(0, 1), nil)) })
			require.NoError(t, s.Checkpoint(t.Context()))
			ref, sums := buildLeaf(t, s, test.fill)
			payload := appendLeaves(nextRedo(s), CatalogTree, ref, sums)
			if test.more != nil {
				payload = test.more(payload, ref, sums)
			}
			again, err := openForged(t, s, disk, payload)
			if test.want != "" {
				require.ErrorIs(t, err, badfile.ErrCorrupt)
				require.ErrorContains(t, err, test.want)
				return
			}
			require.NoError(t, err)
			requireRows(t, again, 11)
			require.NoError(t, again.Close())
		})
	}
}

// TestRepeatedLeafReferencesInTheLog is refused before all of it is read: each time costs a page.
func TestRepeatedLeafReferencesInTheLog(t *testing.T) {
	disk := crashfs.New(crashfs.Options{})
	o := testOptions(disk)
	s := openTest(t, "/a.ebb", o)
	appendRows(t, s, 0, 1)
	require.NoError(t, s.lockWriter(t.Context()))
	s.w.begin()
	b := make([]byte, s.pg.PageSize())
	pager.WriteHeader(b, pager.Header{Kind: pager.KindLeaf})
	ref, err := s.pg.WriteLeafRun(s.epoch, s.w.firstOwner, b, s.w.policy)
	require.NoError(t, err)
	payload := append(binary.LittleEndian.AppendUint64(nil, s.head.seq+1), make([]byte, 8)...)
	for range s.pg.Alloc.FileBytes()/int64(s.pg.PageSize()) + 1 {
		payload = appendLeaves(payload, CatalogTree, ref,
			binary.LittleEndian.AppendUint64(nil, pager.Checksum(b)))
	}
	end, err := s.log.Append(append(payload, 255), true) // An operation that does not decode comes last.
	require.NoError(t, err)
	require.NoError(t, s.log.Wait(end, true))
	s.unlockWriter()
	o.FS = imageOf(t, disk).Disk(crashfs.Options{})
	_, err = Open("/a.ebb", o)
	require.ErrorIs(t, err, badfile.ErrCorrupt)
	require.ErrorContains(t, err, "more leaves than the file has pages")
}
