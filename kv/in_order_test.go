package kv_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
)

// TestRowsInOrderBesideReaders applies batches of rows in order to a store that waits for no sync,
// beside checkpoints, syncs, changes of rows that came a moment ago, and readers, each of which
// sees whole batches. Then it is opened again, as Close leaves it.
func TestRowsInOrderBesideReaders(t *testing.T) {
	const batches, size = 150, 400
	at := filepath.Join(t.TempDir(), "test.ebb")
	o := &kv.Options{Durability: kv.NoSync, CacheBytes: 4 << 20, CheckpointBytes: 1 << 20}
	db, err := kv.OpenFS(vfs.OS, at, o, kv.Tuning{SegmentSize: 256 << 10})
	require.NoError(t, err)
	key := func(i int) []byte { return fmt.Appendf(nil, "key %08d", i) }
	read := func(tx *kv.Tx) (n int, err error) {
		for k, v := range tx.All() {
			if string(k) != string(key(n)) || len(v) < 8 || binary.BigEndian.Uint64(v) != uint64(n) {
				return n, fmt.Errorf("row %d is %q", n, k)
			}
			n++
		}
		if n%size != 0 {
			err = fmt.Errorf("%d rows are no whole batches", n)
		}
		return n, err
	}
	var done atomic.Bool
	var readers sync.WaitGroup
	errs := make([]error, 3)
	for i := range errs {
		readers.Go(func() {
			for last := 0; !done.Load() && errs[i] == nil; time.Sleep(time.Duration(i) * time.Millisecond) {
				errs[i] = db.View(func(tx *kv.Tx) error {
					n, err := read(tx)
					if err == nil && n < last {
						err = fmt.Errorf("%d rows after %d", n, last)
					}
					last = n
					return err
				})
			}
		})
	}
	b := db.NewBatch()
	value := make([]byte, 120)
	for i := range batches {
		b.Reset()
		for k := i * size; k < (i+1)*size; k++ {
			binary.BigEndian.PutUint64(value, uint64(k))
			if k%97 == 0 {
				b.PutTTL(key(k), value, time.Hour)
			} else {
				b.Put(key(k), value)
			}
		}
		require.NoError(t, db.Apply(context.Background(), b))
		switch i % 10 {
		case 3:
			require.NoError(t, db.Sync())
		case 7: // rows of leaves that the log names
			require.NoError(t, db.Update(func(tx *kv.Tx) error {
				for k := i * size; k < (i+1)*size; k += 7 {
					v, err := tx.Get(key(k))
					if err != nil {
						return err
					}
					if err := tx.Put(key(k), append(v, "changed"...)); err != nil {
						return err
					}
				}
				return nil
			}))
		}
	}
	done.Store(true)
	readers.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	for range 2 {
		require.NoError(t, db.View(func(tx *kv.Tx) error {
			n, err := read(tx)
			require.Equal(t, batches*size, n)
			return err
		}))
		require.NoError(t, db.Close())
		db, err = kv.Open(at, o)
		require.NoError(t, err)
	}
	require.NoError(t, db.Close())
}
