package kv_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/platformtest"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
)

// fileOfRows is the file of a store of 100,000 rows.
func fileOfRows(t *testing.T) string {
	t.Helper()
	at := filepath.Join(t.TempDir(), "a.ebb")
	db, err := kv.Open(at, nil)
	require.NoError(t, err)
	_, err = db.BulkLoad(t.Context(), "default", numbered(100_000))
	require.NoError(t, err)
	require.NoError(t, db.Close())
	return at
}

// TestFileCutShortUnderAnOpenStoreIsAnError: the pages behind the cut are mapped, and touching them
// is a fault.
func TestFileCutShortUnderAnOpenStoreIsAnError(t *testing.T) {
	at := fileOfRows(t)
	db, err := kv.Open(at, nil)
	require.NoError(t, err)
	platformtest.MayRefuse(t, os.Truncate(at, 4*4096), "windows")
	key := []byte("k00050000")
	_, err = db.Get(key)
	require.ErrorIs(t, err, kv.ErrCorrupt)
	require.ErrorIs(t, db.View(func(tx *kv.Tx) error {
		for range tx.All() {
		}
		return nil
	}), kv.ErrCorrupt)
	require.ErrorIs(t, db.View(func(tx *kv.Tx) error {
		c := tx.Cursor()
		c.Seek(key)
		return c.Err()
	}), kv.ErrCorrupt)
	require.ErrorIs(t, db.Put(key, nil), kv.ErrCorrupt)
	found := 0
	for range db.Check(t.Context()) {
		found++
	}
	require.NotZero(t, found)
	_ = db.Close()
}

// TestFileCutShortUnderTheCatalogIsAnError: Tx.CF looks there, where the transaction has changed
// it, and the fault ended the process.
func TestFileCutShortUnderTheCatalogIsAnError(t *testing.T) {
	platformtest.NeedsMap(t)
	at := filepath.Join(t.TempDir(), "a.ebb")
	name := func(i int) string { return fmt.Sprintf("family-%05d", i) }
	db, err := kv.Open(at, nil)
	require.NoError(t, err)
	require.NoError(t, db.Update(func(tx *kv.Tx) error {
		for i := range 3000 {
			require.NoError(t, tx.CreateCF(name(i), kv.CFOptions{}))
		}
		return nil
	}))
	require.NoError(t, db.Close())
	db, err = kv.Open(at, nil)
	require.NoError(t, err)
	key, cut := []byte("k"), false
	require.ErrorIs(t, db.Update(func(tx *kv.Tx) error {
		_, err := tx.CF(name(2500)).Has(key)
		require.NoError(t, err)
		require.NoError(t, tx.DropCF(name(1)))
		platformtest.MayRefuse(t, os.Truncate(at, 4*4096), "windows")
		cut = true
		_, err = tx.CF(name(2500)).Has(key)
		require.ErrorIs(t, err, kv.ErrCorrupt)
		return tx.Put(key, nil)
	}), kv.ErrCorrupt)
	require.True(t, cut)
	_ = db.Close()
}

// TestFileCutShortUnderABatchIsAnError, whether workers of the store's own or the caller's
// goroutine comes to the pages behind the cut.
func TestFileCutShortUnderABatchIsAnError(t *testing.T) {
	for _, inline := range []bool{true, false} {
		at := fileOfRows(t)
		db, err := kv.OpenFS(vfs.OS, at, nil, kv.Tuning{Inline: inline, ManyFrom: 2})
		require.NoError(t, err)
		require.NoError(t, db.Put([]byte("starts the log"), nil))
		b := db.NewBatch()
		for i := range 2000 {
			b.Delete(fmt.Appendf(nil, "k%08d", i*7919%100_000))
		}
		platformtest.MayRefuse(t, os.Truncate(at, 4*4096), "windows")
		require.ErrorIs(t, db.Apply(t.Context(), b), kv.ErrCorrupt)
		_ = db.Close()
	}
}

// TestFileCutShortInsideAValueIsAnError: one get verified a value, and another process truncated the
// file before the next. The second get read none of its bytes until the copy, and the fault killed
// the process.
func TestFileCutShortInsideAValueIsAnError(t *testing.T) {
	key, value := []byte("large"), bytes.Repeat([]byte("a value of a megabyte, "), 1<<20/23)
	for name, get := range map[string]func(db *kv.DB) ([]byte, error){
		"Get":       func(db *kv.DB) ([]byte, error) { return db.Get(key) },
		"GetTTL":    func(db *kv.DB) ([]byte, error) { value, _, err := db.GetTTL(key); return value, err },
		"GetAppend": func(db *kv.DB) ([]byte, error) { return db.GetAppend(nil, key) },
		"in_a_transaction": func(db *kv.DB) (value []byte, err error) {
			err = db.View(func(tx *kv.Tx) error {
				value, err = tx.GetAppend([]byte("<"), key)
				return err
			})
			return value[1:], err
		},
	} {
		t.Run(name, func(t *testing.T) {
			at := filepath.Join(t.TempDir(), "a.ebb")
			db, err := kv.Open(at, nil)
			require.NoError(t, err)
			for range 2 { // The pages above the value lie where the first one was.
				require.NoError(t, db.PutTTL(key, value, time.Hour))
				require.NoError(t, db.Checkpoint(t.Context()))
			}
			require.NoError(t, db.Put(small, nil))
			require.NoError(t, db.Close())
			db, err = kv.Open(at, nil)
			require.NoError(t, err)
			got, err := get(db)
			require.NoError(t, err)
			require.True(t, bytes.Equal(value, got))

			file, err := os.ReadFile(at)
			require.NoError(t, err)
			platformtest.MayRefuse(t, os.Truncate(at, int64(bytes.LastIndex(file, value[:4096]))), "windows")
			got, err = get(db)
			require.ErrorIs(t, err, kv.ErrCorrupt)
			require.Empty(t, got)
			_ = db.Close()
		})
	}
}

// TestFileCutShortBeforeACheckpoint, or before the last one of Close: both read pages through the
// map, to change them.
func TestFileCutShortBeforeACheckpoint(t *testing.T) {
	platformtest.NeedsMap(t) // Without one the pager has copies of the pages that it read before the cut.
	for name, checkpoint := range map[string]func(db *kv.DB) error{
		"Checkpoint": func(db *kv.DB) error { return db.Checkpoint(t.Context()) },
		"Close":      (*kv.DB).Close,
	} {
		t.Run(name, func(t *testing.T) {
			at := filepath.Join(t.TempDir(), "a.ebb")
			db, err := kv.Open(at, nil)
			require.NoError(t, err)
			// so many that the table of their trees has several leaves
			require.NoError(t, db.Update(func(tx *kv.Tx) error {
				for i := range 400 {
					if err := tx.CreateCF(fmt.Sprintf("f%03d", i), kv.CFOptions{}); err != nil {
						return err
					}
				}
				return nil
			}))
			_, err = db.BulkLoad(t.Context(), "f200", numbered(100))
			require.NoError(t, err)
			require.NoError(t, db.Close())

			db, err = kv.Open(at, nil)
			require.NoError(t, err)
			require.NoError(t, db.Update(func(tx *kv.Tx) error { return tx.CF("f200").Put([]byte("k"), nil) }))
			platformtest.MayRefuse(t, os.Truncate(at, 3*4096), "windows")
			require.ErrorIs(t, checkpoint(db), kv.ErrCorrupt)
			require.ErrorIs(
				t,
				db.Put([]byte("k"), nil),
				map[string]error{"Checkpoint": kv.ErrFailed, "Close": kv.ErrClosed}[name],
			)
			_ = db.Close()
		})
	}
}
