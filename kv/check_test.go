package kv_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/openfs"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
	"github.com/ebbkv/ebb/txn"
)

// TestCheckThatIsLeft: the body of a range over Check that leaves it at any finding, in whatever way,
// leaves no lock behind, and gets no more findings.
func TestCheckThatIsLeft(t *testing.T) {
	disk := vfs.NewMemory()
	open := func() *kv.DB {
		db, err := openfs.Open(
			disk,
			path,
			&kv.Options{Clock: newClock().now, CacheBytes: 1 << 20},
			txn.Options{SegmentSize: 64 << 10, NoMap: true},
		)
		require.NoError(t, err)
		return db
	}
	db := open()
	require.NoError(t, db.Update(putMany(defaultCF, "row", 3000)))
	require.NoError(t, db.Update(func(tx *kv.Tx) error {
		for _, name := range []string{"a", "b"} {
			require.NoError(t, tx.CreateCF(name, kv.CFOptions{}))
			require.NoError(t, tx.CF(name).PutTTL(small, nil, time.Hour))
			f, err := kv.FindFamily(tx, name)
			require.NoError(t, err)
			_, err = kv.RawTx(tx).Put(f.KeyIndex(), []byte("of no row"), make([]byte, 8), 0)
			require.NoError(t, err)
		}
		return nil
	}))
	require.NoError(t, db.Close())
	file, err := disk.Open(path, vfs.Write)
	require.NoError(t, err)
	size, err := file.Size()
	require.NoError(t, err)
	for off := int64(20 * 4096); off < min(size, 40*4096); off += 3 * 4096 {
		var b [1]byte
		require.NoError(t, vfs.ReadFull(file, b[:], off+2000))
		b[0]++
		_, err := file.WriteAt(b[:], off+2000)
		require.NoError(t, err)
	}
	require.NoError(t, file.Close())

	db = open()
	kinds, all := map[string]bool{}, 0
	for p := range db.Check(t.Context()) {
		kinds[p.Kind] = true
		all++
	}
	require.Greater(t, all, 2)
	require.Greater(t, len(kinds), 1, "%v", kinds)
	require.NoError(t, db.Close())
	value := errors.New("mine")
	for n := 1; n <= all; n++ {
		for _, way := range []string{"break", "panic", "goexit"} {
			db := open()
			met := 0
			leave := func() {
				for range db.Check(context.Background()) {
					if met++; met == n {
						if way == "break" {
							break
						}
						ways[way](value)
					}
				}
			}
			if way == "break" {
				leave()
			} else {
				requireLeft(t, way, value, leave)
			}
			require.Equal(t, n, met)
			require.Zero(t, db.Stats().Readers)
			require.NoError(t, db.CreateCF("new", kv.CFOptions{}))
			require.NoError(t, db.DropCF("new"))
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			err := db.Checkpoint(ctx)
			cancel()
			require.NotErrorIs(t, err, context.DeadlineExceeded)
			_ = db.Close()
		}
	}
}
