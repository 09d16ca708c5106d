package txn

import (
	"bytes"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/pager"
)

// TestBackupSeesALostWrite: a leaf that holds an older page of its number, which proves by itself, is
// damage.
func TestBackupSeesALostWrite(t *testing.T) {
	disk := crashfs.New(crashfs.Options{Untraced: true})
	s := openTest(t, "/a.ebb", testOptions(disk))
	update(t, s, func(tx *Tx) { require.NoError(t, tx.Create(9)) })
	older, page, leaves := map[pager.Ref][]byte{}, make([]byte, s.pg.PageSize()), []pager.Ref(nil)
	f, err := disk.Open("/a.ebb", vfs.Write)
	require.NoError(t, err)
	defer f.Close()
	for round := range 8 {
		update(t, s, func(tx *Tx) {
			for i := range 200 {
				mustPut(t, tx, 9, fmt.Appendf(nil, "%03d", i), fmt.Appendf(nil, "%0200d", round), 0)
			}
		})
		require.NoError(t, s.Checkpoint(nil))
		leaves = leaves[:0]
		at, _ := s.head.trees.get(9)
		read := func(ref pager.Ref, _ uint8) ([]byte, error) {
			return s.pg.Reader.ReadVerified(ref, s.durable, nil)
		}
		require.NoError(t, tree.Newer(read, at, 0, func(ref pager.Ref, _ uint64) error {
			require.NoError(t, vfs.ReadFull(f, page, int64(ref.Pgid)*int64(len(page))))
			if pager.ReadHeader(page).Kind == pager.KindLeaf {
				older[ref], leaves = bytes.Clone(page), append(leaves, ref)
			}
			return nil
		}))
	}
	lost := 0
	for _, ref := range leaves {
		for was, b := range older {
			if was.Pgid != ref.Pgid || was.Epoch == ref.Epoch {
				continue
			}
			lost++
			require.NoError(t, vfs.WriteFull(f, b, int64(ref.Pgid)*int64(len(page))))
			_, err := s.Backup(t.Context(), io.Discard, BackupOptions{})
			require.ErrorIs(t, err, badfile.ErrCorrupt)
			require.NoError(t, vfs.WriteFull(f, older[ref], int64(ref.Pgid)*int64(len(page))))
		}
	}
	require.Positive(t, lost)
	_, err = s.Backup(t.Context(), io.Discard, BackupOptions{})
	require.NoError(t, err)
}
