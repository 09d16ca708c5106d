package kv_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/openfs"
	"github.com/ebbkv/ebb/internal/platformtest"
	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
	"github.com/ebbkv/ebb/txn"
)

// A theft takes the main file away from an open store.
type theft struct {
	name   string
	theirs files // what stands in its place
	gone   bool  // nothing is left of ours but the log
}

// TestFileReplacedWhileOpen removes the main file before each call that changes a file: it is renamed,
// unlinked, or replaced by another store, with or without a log. The next checkpoint, segment switch
// or Close, whichever is first, returns ErrFileReplaced, and the store refuses writes. The other
// store's files are unchanged; the own files, put back, have every commit that returned.
func TestFileReplacedWhileOpen(t *testing.T) {
	racetest.OneGoroutine(t)
	states := sessionStates(t)
	other := othersStore(t)
	for _, th := range []theft{
		{name: "renamed"},
		{name: "removed", gone: true},
		{name: "replaced", theirs: files{mainFile: other[mainFile]}},
		{name: "replaced_with_its_log", theirs: other, gone: true},
	} {
		t.Run(th.name, func(t *testing.T) {
			n := 0
			for th.at(t, n, states) {
				n += stride(4)
			}
			require.Greater(t, n, 100)
		})
	}
}

// at is a session with the theft before the n-th call that changes something; false: there are not
// so many.
func (th *theft) at(t *testing.T, n int, states map[uint64]string) bool {
	disk := vfs.NewMemory()
	s := &session{clock: newClock(), begun: 1}
	calls, stolenIn, why := 0, "", ""
	looked := false // the engine has looked at the name since
	var blind []string
	fsys := &hookFS{disk, func(call, name string) error {
		if s.db == nil {
			return nil
		}
		if stolenIn == "" && changes(call) {
			if calls++; calls > n {
				stolenIn, why = s.step, fmt.Sprintf("in %s, before call %d, %s of %s", s.step, n, call, name)
				require.NoError(t, disk.Rename(path, "away/"+mainFile))
				require.NoError(t, writeFiles(disk, th.theirs))
			}
		}
		if stolenIn != "" {
			looked = looked || call == "stat" && name == path
			if !looked && (call == "create" || call == "rename" || call == "remove") {
				blind = append(blind, call+" of "+name)
			}
		}
		return nil
	}}
	db, err := reopenAt(fsys, s.clock, nil)
	require.NoError(t, err)
	s.db, s.acked = db, 1
	err = s.run()
	if stolenIn == "" {
		require.NoError(t, err)
		return false
	}
	if err == nil {
		require.Equal(t, "close", stolenIn, "unnoticed: %s", why)
	} else {
		require.ErrorIs(t, err, kv.ErrFileReplaced, why)
		th.isPoisoned(t, s, why)
	}
	now := filesOf(t, disk, nil)
	for name, b := range th.theirs {
		// Between the look at a name and its use there is a moment: for a file of the log, not for
		// the main file.
		if name == mainFile || len(blind) == 0 {
			require.True(t, bytes.Equal(b, now[name]), "%s: the other store's %s has changed", why, name)
		}
	}
	require.LessOrEqual(t, segmentSwitches(blind), 1, "%s: %v", why, blind)
	if !th.gone {
		require.NoError(t, disk.Rename("away/"+mainFile, path))
		requireState(t, disk, states, s.acked, s.begun, why)
	}
	return true
}

// isPoisoned requires that a store writes nothing more.
func (th *theft) isPoisoned(t *testing.T, s *session, why string) {
	if s.step == "close" {
		return
	}
	err := s.db.Put([]byte("k"), nil)
	require.ErrorIs(t, err, kv.ErrFailed, why)
	require.ErrorIs(t, err, kv.ErrFileReplaced, why)
	require.ErrorIs(t, s.db.Close(), kv.ErrFileReplaced, why)
}

// segmentSwitches counts the segments that were made or recycled in a list of calls.
func segmentSwitches(calls []string) (n int) {
	for _, c := range calls {
		if strings.HasPrefix(c, "create") || strings.HasPrefix(c, "rename") {
			n++
		}
	}
	return n
}

// othersStore are the files of another store under the same name, as a killed process leaves them.
func othersStore(t *testing.T) files {
	t.Helper()
	disk := vfs.NewMemory()
	fill(t, openOn(t, disk, nil), "other")
	return filesOf(t, disk, nil)
}

// writeFiles puts files into the directory of the store. One that has such a name loses it, and is
// not changed.
func writeFiles(disk vfs.FS, all files) error {
	for name, b := range all {
		f, err := disk.Open("other/"+name, vfs.Write|vfs.Create)
		if err != nil {
			return err
		}
		if err := vfs.WriteFull(f, b, 0); err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
		if err := disk.Rename("other/"+name, "dir/"+name); err != nil {
			return err
		}
	}
	return nil
}

// TestSegmentRemovedWhileOpen removes the oldest file of the log before each call that changes a file.
// The state in memory survives that: no acknowledged commit is lost, or the next Open returns
// ErrCorrupt. The store itself notices when it renames or removes the file.
func TestSegmentRemovedWhileOpen(t *testing.T) {
	racetest.OneGoroutine(t)
	states := sessionStates(t)
	noticed := 0
	for n := 0; ; n += stride(4) {
		disk := vfs.NewMemory()
		s := &session{clock: newClock(), begun: 1}
		calls, why := 0, ""
		fsys := &hookFS{disk, func(call, name string) error {
			if s.db == nil || !changes(call) {
				return nil
			}
			if calls++; calls == n+1 {
				why = fmt.Sprintf("in %s, before call %d, %s of %s", s.step, n, call, name)
				removeSegment(t, disk)
			}
			return nil
		}}
		db, err := reopenAt(fsys, s.clock, nil)
		require.NoError(t, err)
		s.db, s.acked = db, 1
		if err = s.run(); why == "" {
			require.NoError(t, err)
			break
		}
		if err != nil {
			noticed++
			require.ErrorIs(t, err, kv.ErrFailed, why)
			require.ErrorIs(t, err, fs.ErrNotExist, why)
			_ = s.db.Close()
		}
		if left, err := reopenAt(crashed(t, disk), newClock(), nil); err != nil {
			require.ErrorIs(t, err, kv.ErrCorrupt, why)
		} else {
			require.NoError(t, left.Close())
			requireState(t, crashed(t, disk), states, s.acked, s.begun, why)
		}
	}
	require.NotZero(t, noticed)
}

// removeSegment removes the oldest segment, if there is one.
func removeSegment(t *testing.T, disk vfs.FS) {
	t.Helper()
	names, err := disk.List("dir")
	require.NoError(t, err)
	for _, name := range names {
		if name != mainFile {
			require.NoError(t, disk.Remove("dir/"+name))
			return
		}
	}
}

// fileOfRows is the file of a store of 100,000 rows.
func fileOfRows(t *testing.T) string {
	t.Helper()
	at := filepath.Join(t.TempDir(), "a.ebb")
	db := mustOpen(t, at, nil)
	_, err := db.BulkLoad(t.Context(), "default", numbered(100_000))
	require.NoError(t, err)
	require.NoError(t, db.Close())
	return at
}

// TestFileCutShortUnderAnOpenStoreIsAnError: the pages behind the cut are mapped, and an access to
// them is a fault.
func TestFileCutShortUnderAnOpenStoreIsAnError(t *testing.T) {
	at := fileOfRows(t)
	db := mustOpen(t, at, nil)
	platformtest.MayRefuse(t, os.Truncate(at, 4*4096), "windows")
	key := []byte("k00050000")
	_, err := db.Get(key)
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

// TestFileCutShortUnderTheCatalogIsAnError: Tx.CF reads the catalog after the transaction has changed
// it, and the fault killed the process.
func TestFileCutShortUnderTheCatalogIsAnError(t *testing.T) {
	platformtest.NeedsMap(t)
	at := filepath.Join(t.TempDir(), "a.ebb")
	name := func(i int) string { return fmt.Sprintf("family-%05d", i) }
	db := mustOpen(t, at, nil)
	require.NoError(t, db.Update(func(tx *kv.Tx) error {
		for i := range 3000 {
			require.NoError(t, tx.CreateCF(name(i), kv.CFOptions{}))
		}
		return nil
	}))
	require.NoError(t, db.Close())
	db = mustOpen(t, at, nil)
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

// TestFileCutShortUnderABatchIsAnError, whether a worker of the store or the caller's goroutine
// accesses the pages behind the cut.
func TestFileCutShortUnderABatchIsAnError(t *testing.T) {
	for _, inline := range []bool{true, false} {
		at := fileOfRows(t)
		db, err := openfs.Open(vfs.OS, at, nil, txn.Options{Inline: inline, ManyFrom: 2})
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
			db := mustOpen(t, at, nil)
			for range 2 { // The pages above the value lie where the first one was.
				require.NoError(t, db.PutTTL(key, value, time.Hour))
				require.NoError(t, db.Checkpoint(t.Context()))
			}
			require.NoError(t, db.Put(small, nil))
			require.NoError(t, db.Close())
			db = mustOpen(t, at, nil)
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
			db := mustOpen(t, at, nil)
			// so many that the table of their trees has several leaves
			require.NoError(t, db.Update(func(tx *kv.Tx) error {
				for i := range 400 {
					if err := tx.CreateCF(fmt.Sprintf("f%03d", i), kv.CFOptions{}); err != nil {
						return err
					}
				}
				return nil
			}))
			_, err := db.BulkLoad(t.Context(), "f200", numbered(100))
			require.NoError(t, err)
			require.NoError(t, db.Close())

			db = mustOpen(t, at, nil)
			require.NoError(t, db.Update(func(tx *kv.Tx) error {
				return tx.CF("f200").Put([]byte("k"),
					nil)
			}))
			platformtest.MayRefuse(t, os.Truncate(at, 3*4096), "windows")
			require.ErrorIs(t, checkpoint(db), kv.ErrCorrupt)
			require.ErrorIs(t, db.Put([]byte("k"), nil),
				map[string]error{"Checkpoint": kv.ErrFailed, "Close": kv.ErrClosed}[name])
			_ = db.Close()
		})
	}
}
