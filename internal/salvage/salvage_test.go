package salvage_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/openfs"
	"github.com/ebbkv/ebb/internal/salvage"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
	"github.com/ebbkv/ebb/pager"
	"github.com/ebbkv/ebb/txn"
)

const (
	damaged = "damaged.ebb"
	page    = 4096
)

var engine = txn.Options{NoMap: true, Inline: true}

func open(t *testing.T, fsys vfs.FS, path string, o kv.Options) *kv.DB {
	t.Helper()
	db, err := openfs.Open(fsys, path, &o, engine)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// zero clears the pages that want accepts, and returns their number.
func zero(t *testing.T, fsys vfs.FS, want func(h pager.Header) bool) (n int) {
	t.Helper()
	f, err := fsys.Open(damaged, vfs.Write)
	require.NoError(t, err)
	size, err := f.Size()
	require.NoError(t, err)
	b := make([]byte, page)
	for at := int64(0); at < size/page; at++ {
		require.NoError(t, vfs.ReadFull(f, b, at*page))
		if h := pager.ReadHeader(b); h.Pgid == pager.Pgid(at) && want(h) {
			n++
			require.NoError(t, vfs.WriteFull(f, make([]byte, page), at*page))
		}
	}
	require.NoError(t, f.Close())
	return n
}

// keys lists all keys of a store, with their families, and checks it.
func keys(t *testing.T, fsys vfs.FS, path string) (all []string) {
	t.Helper()
	db := open(t, fsys, path, kv.Options{ReadOnly: true, MustExist: true})
	for p := range db.Check(t.Context()) {
		t.Fatal(p)
	}
	require.NoError(t, db.View(func(tx *kv.Tx) error {
		names, err := tx.ListCFs()
		require.NoError(t, err)
		for _, name := range names {
			c := tx.CF(name).Cursor()
			for ok := c.First(); ok; ok = c.Next() {
				all = append(all, name+"/"+string(c.Key()))
			}
		}
		return nil
	}))
	return all
}

// TestRowsOfAFailedLoadAreNotSaved: its leaves prove, and fit the bounds of a lost branch. The free
// map says that they are not in use, and where that is lost, too, nothing is believed.
func TestRowsOfAFailedLoadAreNotSaved(t *testing.T) {
	for _, freeMap := range []bool{true, false} {
		fsys := vfs.NewMemory()
		db := open(t, fsys, damaged, kv.Options{})
		require.NoError(t, db.Update(func(tx *kv.Tx) error {
			for i := range 3000 {
				require.NoError(t, tx.Put(fmt.Appendf(nil, "row-%05d", i*7), []byte("committed")))
			}
			return tx.CreateCF("load", kv.CFOptions{})
		}))
		require.NoError(t, db.Close())
		db = open(t, fsys, damaged, kv.Options{})
		stop := errors.New("stop")
		func() {
			defer func() { require.Equal(t, stop, recover()) }()
			_, _ = db.BulkLoad(t.Context(), "load", func(yield func(k, v []byte) bool) {
				for i := range 100_000 {
					yield(fmt.Appendf(nil, "row-%05d-never", i), []byte("never committed"))
				}
				panic(stop)
			})
		}()
		require.NoError(t, db.Put([]byte("last"), nil))
		require.NoError(t, db.Close())
		lost := zero(t, fsys, func(h pager.Header) bool {
			space := h.Kind == pager.KindFreeMap || h.Kind == pager.KindFreeDir
			return h.Kind == pager.KindBranch || !freeMap && space
		})
		require.Greater(t, lost, 0)
		r, err := salvage.Run(t.Context(), damaged, "out.ebb", salvage.Options{FS: fsys, Engine: engine})
		require.NoError(t, err)
		saved := keys(t, fsys, "out.ebb")
		require.NotContains(t, strings.Join(saved, " "), "never", "%+v", r)
		if freeMap {
			require.Len(t, saved, 3001)
			require.True(t, r.Whole, "%+v", r)
			continue
		}
		require.Empty(t, saved)
		require.EqualValues(t, 3001, r.Families[0].Missing)
		require.Greater(t, r.StaleRows, int64(3000))
		o := salvage.Options{FS: fsys, Engine: engine, Stale: true}
		_, err = salvage.Run(t.Context(), damaged, "found.ebb", o)
		require.NoError(t, err)
		require.Contains(t, keys(t, fsys, "found.ebb"), "lost+found-1/last")
	}
}

// TestManyFamiliesWithoutMetaPages has a tree table and a catalog of several pages each.
func TestManyFamiliesWithoutMetaPages(t *testing.T) {
	fsys := vfs.NewMemory()
	db := open(t, fsys, damaged, kv.Options{})
	require.NoError(t, db.Update(func(tx *kv.Tx) error {
		for i := range 400 {
			name := fmt.Sprintf("family-%03d", i)
			require.NoError(t, tx.CreateCF(name, kv.CFOptions{}))
			require.NoError(t, tx.CF(name).Put([]byte(name), nil))
		}
		return nil
	}))
	require.NoError(t, db.Close())
	want := keys(t, fsys, damaged)
	require.Equal(t, 2, zero(t, fsys, func(h pager.Header) bool { return h.Pgid < 2 }))
	r, err := salvage.Run(t.Context(), damaged, "out.ebb", salvage.Options{FS: fsys, Engine: engine})
	require.NoError(t, err)
	require.True(t, r.Whole, "%+v", r.Notes)
	require.Equal(t, want, keys(t, fsys, "out.ebb"))
}

// TestAnOutputThatFailsLeavesNoStore fails each write of the new store in turn. On a full disk its error
// was there twice, and said that the damaged store could not be opened.
func TestAnOutputThatFailsLeavesNoStore(t *testing.T) {
	fsys := vfs.NewMemory()
	db := open(t, fsys, damaged, kv.Options{})
	require.NoError(t, db.Put([]byte("k"), make([]byte, 10_000)))
	require.NoError(t, db.Close())
	done := false
	for n := 0; !done; n++ {
		failing := &failingFS{FS: fsys, left: n}
		_, err := salvage.Run(t.Context(), damaged, "out.ebb", salvage.Options{FS: failing, Engine: engine})
		if done = err == nil; !done {
			require.LessOrEqual(t, strings.Count(err.Error(), "family \"default\""), 1, "write %d: %v",
				n, err)
			require.NotContains(t, err.Error(), "open "+damaged)
			_, err = fsys.Stat("out.ebb")
			require.ErrorIs(t, err, fs.ErrNotExist, "write %d", n)
		}
	}
	require.Equal(t, []string{"default/k"}, keys(t, fsys, "out.ebb"))
}

// failingFS fails every write, sync and rename behind the first ones.
type failingFS struct {
	vfs.FS
	left int
}

var errFull = errors.New("injected")

func (f *failingFS) fail() error {
	if f.left--; f.left < 0 {
		return errFull
	}
	return nil
}

func (f *failingFS) Open(name string, flag vfs.Flag) (vfs.File, error) {
	file, err := f.FS.Open(name, flag)
	return failingFile{file, f}, err
}

func (f *failingFS) Rename(from, to string) error {
	if err := f.fail(); err != nil {
		return err
	}
	return f.FS.Rename(from, to)
}

type failingFile struct {
	vfs.File
	fs *failingFS
}

func (f failingFile) WriteAt(b []byte, off int64) (int, error) {
	if err := f.fs.fail(); err != nil {
		return 0, err
	}
	return f.File.WriteAt(b, off)
}

func (f failingFile) Sync() error {
	if err := f.fs.fail(); err != nil {
		return err
	}
	return f.File.Sync()
}

// TestFamiliesWithoutACatalog keep their rows, expiries, sequences and partitions, under other names.
func TestFamiliesWithoutACatalog(t *testing.T) {
	fsys := vfs.NewMemory()
	db := open(t, fsys, damaged, kv.Options{})
	at := time.Now().Add(time.Hour).Truncate(time.Millisecond)
	require.NoError(t, db.Update(func(tx *kv.Tx) error {
		require.NoError(t, tx.CreateCF("timed", kv.CFOptions{}))
		require.NoError(t, tx.CreateCF("points",
			kv.CFOptions{Retention: 240 * time.Hour, Partition: time.Hour}))
		require.NoError(t, tx.CreateCF("counters", kv.CFOptions{}))
		for i := range 50 {
			_, err := tx.CF("timed").NextSequence()
			require.NoError(t, err)
			key := fmt.Appendf(nil, "key-%02d", i)
			require.NoError(t, tx.CF("timed").PutExpireAt(key, []byte("value of key"), at))
			require.NoError(t, tx.CF("points").Append(at.Add(time.Duration(-i)*time.Hour), key, []byte("x")))
			require.NoError(t, tx.CF("counters").Put(key, make([]byte, 8)))
		}
		return nil
	}))
	require.NoError(t, db.Close())
	raw, err := pager.OpenRaw(fsys, damaged, true)
	require.NoError(t, err)
	catalogs := map[pager.Pgid]bool{}
	require.NoError(t, raw.Scan(func(h pager.Header, b []byte) bool {
		if h.Kind == pager.KindLeaf && bytes.Contains(b, []byte("counters")) && bytes.Contains(b,
			[]byte("points")) {
			catalogs[h.Pgid] = true
		}
		return true
	}))
	require.NoError(t, raw.Close())
	require.Equal(t, 1, zero(t, fsys, func(h pager.Header) bool { return catalogs[h.Pgid] }))
	r, err := salvage.Run(t.Context(), damaged, "out.ebb", salvage.Options{FS: fsys, Engine: engine})
	require.NoError(t, err)
	require.False(t, r.Whole)
	db = open(t, fsys, "out.ebb", kv.Options{})
	for p := range db.Check(t.Context()) {
		t.Fatal(p)
	}
	timed, points, counters := 0, 0, 0
	require.NoError(t, db.View(func(tx *kv.Tx) error {
		names, err := tx.ListCFs()
		require.NoError(t, err)
		for _, name := range names {
			o, err := tx.CFOptions(name)
			require.NoError(t, err)
			if o.Retention > 0 {
				for k := range tx.CF(name).ScanTime(time.Time{}, time.Time{}, false) {
					require.True(t, strings.HasPrefix(string(k.Key), "key-"))
					points++
				}
				continue
			}
			c := tx.CF(name).Cursor()
			for ok := c.First(); ok; ok = c.Next() {
				if expiry, ok := c.Expiry(); ok {
					require.True(t, expiry.Equal(at))
					last, err := tx.CF(name).Sequence()
					require.NoError(t, err)
					require.EqualValues(t, 50, last)
					timed++
				} else {
					counters++
				}
			}
		}
		return tx.Err()
	}))
	require.Equal(t, []int{50, 50, 50}, []int{timed, points, counters}, "%+v", r)
}
