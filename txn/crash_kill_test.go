package txn

import (
	"math/rand"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/vfs"
)

// TestCopyOfALiveStoreIsWhatAKilledProcessLeaves copies the files between two commits and opens the
// copy: every commit that returned is there, NoSync ones too, and after one recovery the next open
// is clean.
func TestCopyOfALiveStoreIsWhatAKilledProcessLeaves(t *testing.T) {
	for seed := int64(1); seed <= seeds(4); seed++ {
		rnd := rand.New(rand.NewSource(seed))
		o := testOptions(vfs.OS)
		dir := t.TempDir()
		s, err := Open(filepath.Join(dir, "a.ebb"), o)
		require.NoError(t, err)
		m := model{CatalogTree: {}}
		for step := range 60 {
			tx := begin(t, s, true)
			randomOps(t, rnd, tx, m, 1+rnd.Intn(1+rnd.Intn(400)))
			require.NoError(t, tx.Commit(Durability(rnd.Intn(2))))
			if step%4 != 0 {
				continue
			}
			image := t.TempDir()
			require.NoError(t, os.CopyFS(image, os.DirFS(dir)))
			for try := range 3 {
				c, err := Open(filepath.Join(image, "a.ebb"), o)
				require.NoError(t, err)
				require.Equal(t, try > 0, c.Recovery().Clean)
				tx := begin(t, c, false)
				requireModel(t, m, tx)
				tx.Rollback()
				requireSound(t, c)
				require.NoError(t, c.Close())
				left, err := os.ReadDir(image)
				require.NoError(t, err)
				require.Len(t, left, 1)
			}
		}
		require.NoError(t, s.Close())
	}
}
