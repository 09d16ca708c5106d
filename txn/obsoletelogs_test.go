package txn

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/vfs"
)

// removals is a file system that calls the test before it removes the n-th segment of a log.
type removals struct {
	vfs.FS
	n   int
	ask func(n int) error
}

func (f *removals) Remove(name string) error {
	if strings.Contains(name, "-wal-") {
		f.n++
		if err := f.ask(f.n); err != nil {
			return err
		}
	}
	return f.FS.Remove(name)
}

// besideOptions are testOptions of a store that has goroutines.
func besideOptions(fs vfs.FS) Options {
	o := testOptions(fs)
	o.Inline, o.CacheBytes, o.CheckpointBytes = false, 64<<20, 1<<40
	return o
}

// logFiles lists the segments of the store at path.
func logFiles(t *testing.T, path string) []string {
	names, err := filepath.Glob(path + "-wal-*")
	require.NoError(t, err)
	return names
}

// openHeld opens a store that was killed, and delays the removal of all segments of its log but the
// first until free is closed.
func openHeld(t *testing.T, path string) (s *Store, free chan struct{}) {
	free = make(chan struct{})
	s, err := Open(path, besideOptions(&removals{FS: vfs.OS, ask: func(n int) error {
		if n > 1 {
			<-free
		}
		return nil
	}}))
	require.NoError(t, err)
	return s, free
}

// TestObsoleteLogIsRemovedBesideTheFirstReads: an Open that has replayed a log removes the first
// segment, so that no later Open replays it, and serves reads while the others are removed. The
// first change waits for that, and starts a log of its own.
func TestObsoleteLogIsRemovedBesideTheFirstReads(t *testing.T) {
	const n = 10_000
	path, _ := killedWithLog(t, n)
	old := logFiles(t, path)
	require.Greater(t, len(old), 4)
	s, free := openHeld(t, path)
	require.Equal(t, old[1:], logFiles(t, path))
	tx, err := s.Begin(t.Context(), false)
	require.NoError(t, err)
	require.Len(t, contents(t, tx, CatalogTree), n)
	tx.Rollback()

	changed := make(chan []string, 1)
	go func() {
		update(t, s, func(tx *Tx) {
			key, value := logRow(n)
			_, err := tx.Put(CatalogTree, key, value, 0)
			require.NoError(t, err)
		})
		changed <- logFiles(t, path)
	}()
	select {
	case <-changed:
		require.Fail(t, "a log has begun beside the old one")
	case <-time.After(50 * time.Millisecond): // Less would find less, and fail nothing that is right.
	}
	require.Equal(t, old[1:], logFiles(t, path))
	close(free)
	now := <-changed
	require.NotEmpty(t, now)
	for _, name := range old {
		require.NotContains(t, now, name)
	}
	require.NoError(t, s.Close())
	require.Empty(t, logFiles(t, path))
}

// TestLogIsGoneAfterClose of an unchanged store.
func TestLogIsGoneAfterClose(t *testing.T) {
	path, _ := killedWithLog(t, 10_000)
	s, err := Open(path, besideOptions(vfs.OS))
	require.NoError(t, err)
	require.NoError(t, s.Close())
	require.Empty(t, logFiles(t, path))
}

// TestLogThatCannotBeRemoved: changes and Close return the error; reads do not. Each of them retries
// the removal.
func TestLogThatCannotBeRemoved(t *testing.T) {
	errNotNow := errors.New("not now")
	for _, change := range []bool{false, true} {
		path, _ := killedWithLog(t, 10_000)
		fail := true
		fs := &removals{FS: vfs.OS, ask: func(n int) error {
			if fail && n > 2 {
				return errNotNow
			}
			return nil
		}}
		s, err := Open(path, besideOptions(fs))
		require.NoError(t, err)
		if change {
			tx, err := s.Begin(t.Context(), true)
			require.NoError(t, err)
			key, value := logRow(1)
			_, err = tx.Put(CatalogTree, key, value, 0)
			require.ErrorIs(t, err, errNotNow)
			tx.Rollback()
			require.NotEmpty(t, logFiles(t, path))
			requireSound(t, s)
			fail = false
			update(t, s, func(tx *Tx) {
				_, err := tx.Put(CatalogTree, key, value, 0)
				require.NoError(t, err)
			})
			require.Len(t, logFiles(t, path), 1)
			require.NoError(t, s.Close())
		} else {
			require.ErrorIs(t, s.Close(), errNotNow)
			fail = false
			s, err = Open(path, besideOptions(fs)) // The chain has no beginning: nothing is replayed again.
			require.NoError(t, err)
			require.True(t, s.Recovery().Clean)
			require.NoError(t, s.Close())
		}
		require.Empty(t, logFiles(t, path))
	}
}

// TestLogOfAnotherStoreStays: the files beside a path belong to the store that has the path now.
func TestLogOfAnotherStoreStays(t *testing.T) {
	path, _ := killedWithLog(t, 10_000)
	s, moved := openHeld(t, path)
	require.NoError(t, os.Rename(path, path+".moved"))
	require.NoError(t, os.WriteFile(path, []byte("another one"), 0o600))
	close(moved)
	s.background.wait()
	require.Greater(t, len(logFiles(t, path)), 3) // one removal was under way
	require.NoError(t, s.Close())
	require.Greater(t, len(logFiles(t, path)), 3)
}
