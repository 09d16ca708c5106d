package live_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/live"
	"github.com/ebbkv/ebb/internal/openfs"
	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
	"github.com/ebbkv/ebb/txn"
)

// TestUnlockedReaderSeesOneState opens a store without a lock while a writer commits and
// checkpoints. Each transaction of the writer fills all rows of the second family with one number, at
// sizes that change: a page of another state that passed for one of this would show another number.
// A reader reads for as long as it can: it fails, with damage, once a later checkpoint has reused its
// pages.
func TestUnlockedReaderSeesOneState(t *testing.T) {
	path := filepath.Join(t.TempDir(), "busy.ebb")
	db, err := openfs.Open(vfs.OS, path, &kv.Options{Durability: kv.NoSync, CheckpointBytes: 128 << 10},
		txn.Options{SegmentSize: 128 << 10})
	require.NoError(t, err)
	require.NoError(t, db.CreateCF("same", kv.CFOptions{}))
	write := func(n int) error {
		return db.Update(func(tx *kv.Tx) error {
			sizes := rand.New(rand.NewPCG(uint64(n), 0))
			for i := range 40 {
				value := bytes.Repeat(fmt.Appendf(nil, "%08d", n), 1+sizes.IntN(2000))
				if err := tx.CF("same").Put(fmt.Appendf(nil, "row %d", i), value); err != nil {
					return err
				}
			}
			return tx.Put(fmt.Appendf(nil, "key %d", sizes.IntN(500)), make([]byte, sizes.IntN(20_000)))
		})
	}
	require.NoError(t, write(0))
	stop := make(chan struct{})
	var writer sync.WaitGroup
	end := sync.OnceFunc(func() {
		close(stop)
		writer.Wait()
	})
	defer end()
	writer.Go(func() {
		for n := 1; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			if err := write(n); err != nil {
				t.Error(err)
				return
			}
		}
	})
	states, whole, stale := map[string]bool{}, 0, 0
	looks := racetest.Sample(150, 20)
	if racetest.Enabled && testing.Short() {
		looks = 20
	}
	for whole < looks || len(states) <= 3 { // how many looks are too late is a matter of turns
		require.Less(t, stale, 100*looks, "looks failed")
		rows, err := readUnlocked(path, states)
		if err != nil {
			if !errors.Is(err, fs.ErrNotExist) { // a segment that was removed after the directory was listed
				require.ErrorIs(t, err, badfile.ErrCorrupt)
			}
			stale++
			continue
		}
		require.Zero(t, rows%40)
		whole++
	}
	end()
	require.NoError(t, db.Close())
	t.Logf("%d looks, %d failed, %d states", whole+stale, stale, len(states))
}

// readUnlocked adds the number that all rows have to states.
func readUnlocked(path string, states map[string]bool) (rows int, err error) {
	db, err := openfs.Open(live.Unlocked(vfs.OS), path, &kv.Options{ReadOnly: true}, txn.Options{})
	if err != nil {
		return 0, err
	}
	defer db.Close()
	first := ""
	read := func(tx *kv.Tx) error {
		for key, value := range tx.CF("same").All() {
			if first == "" {
				first = string(value[:8])
			}
			if !bytes.Equal(value, bytes.Repeat([]byte(first), len(value)/8)) {
				return fmt.Errorf("%s is not filled with %s, as the first row is", key, first)
			}
			rows++
		}
		for range tx.All() {
		}
		return tx.Err()
	}
	for range 4 {
		if err := db.View(read); err != nil {
			// the pages were reused after the first read
			if errors.Is(err, badfile.ErrCorrupt) && rows >= 40 {
				err = nil
			}
			rows -= rows % 40
			return rows, err
		}
		states[first] = true
	}
	return rows, nil
}

// TestUnlockedChangesNothing refuses every call that could.
func TestUnlockedChangesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "some.ebb")
	db, err := kv.Open(path, nil)
	require.NoError(t, err)
	require.NoError(t, db.Put([]byte("key"), []byte("value")))
	fsys := live.Unlocked(vfs.OS)
	_, err = fsys.Open(path, vfs.Write)
	require.ErrorIs(t, err, fs.ErrPermission)
	require.ErrorIs(t, fsys.Remove(path), fs.ErrPermission)
	require.ErrorIs(t, fsys.Rename(path, path+"2"), fs.ErrPermission)
	require.ErrorIs(t, fsys.SyncDir(filepath.Dir(path)), fs.ErrPermission)
	file, err := fsys.Open(path, 0)
	require.NoError(t, err)
	_, err = file.Map(0, 4096)
	require.ErrorIs(t, err, vfs.ErrNoMap, "a page may change, or end, behind its verification")
	require.NoError(t, file.Close())
	for range 2 { // the lock of the first open would refuse the writer's next one
		read, err := openfs.Open(fsys, path, &kv.Options{ReadOnly: true}, txn.Options{})
		require.NoError(t, err)
		value, err := read.Get([]byte("key"))
		require.NoError(t, err)
		require.Equal(t, "value", string(value), "it is in the log only")
		defer read.Close()
	}
	require.NoError(t, db.Close())
	db, err = kv.Open(path, nil)
	require.NoError(t, err)
	require.NoError(t, db.Close())
}
