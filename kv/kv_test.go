package kv_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/leak"
	"github.com/ebbkv/ebb/internal/openfs"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
	"github.com/ebbkv/ebb/txn"
)

// path is where tests keep their store on a file system in memory.
const path = "dir/test.ebb"

// quick is what most tests want: commits do not wait for a disk that is not there.
var quick = &kv.Options{Durability: kv.NoSync}

// openTest opens a store in memory. On clean-up it is checked and closed: every test is a test of
// consistency.
func openTest(t testing.TB) *kv.DB {
	t.Helper()
	return openOn(t, vfs.NewMemory(), quick)
}

// openOn is openTest on a file system and with options of the test's.
func openOn(t testing.TB, fs vfs.FS, o *kv.Options) *kv.DB {
	t.Helper()
	db := mustOpenOn(t, fs, o, txn.Options{SegmentSize: 64 << 10})
	t.Cleanup(func() {
		checkStore(t, db)
		require.NoError(t, db.Close())
	})
	return db
}

func mustOpenOn(t testing.TB, fs vfs.FS, o *kv.Options, tune txn.Options) *kv.DB {
	t.Helper()
	db, err := openfs.Open(fs, path, o, tune)
	require.NoError(t, err)
	return db
}

func beginTx(t testing.TB, db *kv.DB, writable bool) *kv.Tx {
	t.Helper()
	tx, err := db.Begin(context.Background(), writable)
	require.NoError(t, err)
	return tx
}

// checkStore requires that Check finds nothing. A store that the test has closed is not looked at.
func checkStore(t testing.TB, db *kv.DB) {
	t.Helper()
	for p := range db.Check(context.Background()) {
		if p.Kind == "closed" {
			return
		}
		t.Errorf("check: %v", p)
	}
}

// rows returns what a family holds as "key=value" strings.
func rows(t testing.TB, db *kv.DB, family string) []string {
	t.Helper()
	all := []string{}
	require.NoError(t, db.View(func(tx *kv.Tx) error {
		for k, v := range tx.CF(family).All() {
			all = append(all, string(k)+"="+string(v))
		}
		return nil
	}))
	return all
}

// fill puts keys in "default", each with the value v-key.
func fill(t testing.TB, db *kv.DB, keys ...string) {
	t.Helper()
	require.NoError(t, db.Update(func(tx *kv.Tx) error {
		for _, k := range keys {
			if err := tx.Put([]byte(k), []byte("v-"+k)); err != nil {
				return err
			}
		}
		return nil
	}))
}

// seeded returns a generator and says how to get the same one again.
func seeded(t testing.TB, seed uint64) *rand.Rand {
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

// testClock is a clock that stands still until a test moves it.
type testClock struct{ ms atomic.Int64 }

func newClock() *testClock {
	c := new(testClock)
	c.ms.Store(1_700_000_000_000)
	return c
}

func (c *testClock) now() time.Time       { return time.UnixMilli(c.ms.Load()) }
func (c *testClock) move(d time.Duration) { c.ms.Add(d.Milliseconds()) }

// errMachine is what a broken disk says.
var errMachine = errors.New("input/output error")

// brokenFS is a file system that takes no change as soon as broken is set.
type brokenFS struct {
	hookFS
	broken atomic.Bool
}

func newBrokenFS() *brokenFS {
	b := &brokenFS{hookFS: hookFS{FS: vfs.NewMemory()}}
	b.hook = func(call, _ string) error {
		if b.broken.Load() && (changes(call) || call == "start_write") {
			return errMachine
		}
		return nil
	}
	return b
}

// poison breaks the disk under a store and lets it find out.
func poison(t testing.TB, fs *brokenFS, db *kv.DB) {
	t.Helper()
	fs.broken.Store(true)
	err := db.Update(func(tx *kv.Tx) error {
		tx.SetDurability(kv.Sync)
		return tx.Put([]byte("poison"), []byte("x"))
	})
	require.ErrorIs(t, err, errMachine)
	require.ErrorIs(t, db.Put([]byte("k"), nil), kv.ErrFailed)
}

// image hashes every file of a directory, by name.
func image(t testing.TB, fs vfs.FS, dir string) map[string]string {
	t.Helper()
	names, err := fs.List(dir)
	require.NoError(t, err)
	hashes := map[string]string{}
	for _, name := range names {
		f, err := fs.Open(dir+"/"+name, 0)
		require.NoError(t, err)
		size, err := f.Size()
		require.NoError(t, err)
		h := sha256.New()
		_, err = io.Copy(h, io.NewSectionReader(f, 0, size))
		require.NoError(t, err)
		require.NoError(t, f.Close())
		hashes[name] = fmt.Sprintf("%d bytes, %x", size, h.Sum(nil))
	}
	return hashes
}

// bare makes a store that a crash caught right after its creation: it has no family yet.
func bare(t testing.TB, fs vfs.FS) {
	t.Helper()
	s, err := txn.Open(path, txn.Options{FS: fs})
	require.NoError(t, err)
	require.NoError(t, s.Close())
}

func isErr(err, want error) bool { return errors.Is(err, want) }

// TestMain removes what the benchmarks share, which no one of them may.
func TestMain(m *testing.M) {
	code := leak.Run(m, os.Stdout)
	if err := removeBenchFile(); err != nil {
		fmt.Println(err)
		code = 1
	}
	os.Exit(code)
}
