package txn

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/vfs"
)

func TestBulkLoadIsThereWholeOrNotAtAll(t *testing.T) {
	fs := vfs.NewMemory()
	s, err := Open("/a.ebb", testOptions(fs))
	require.NoError(t, err)
	var id TreeID
	update(t, s, func(tx *Tx) {
		id, err = tx.NewTreeIDs(3)
		require.NoError(t, err)
		mustPut(t, tx, CatalogTree, []byte("name"), nil, 0)
	})
	n, err := s.bulkLoad(nil, create(id), id, rowsUpTo(20000))
	require.NoError(t, err)
	require.Equal(t, uint64(20000), n)
	read := begin(t, s, false)
	require.Len(t, contents(t, read, id), 20000)
	read.Rollback()
	requireSound(t, s)

	_, err = s.bulkLoad(nil, nil, id, rowsUpTo(1))
	require.ErrorIs(t, err, ErrOrder, "not empty")
	_, err = s.bulkLoad(nil, nil, id+1, rowsUpTo(1))
	require.ErrorIs(t, err, ErrNoTree)
	broken := errors.New("broken")
	_, err = s.bulkLoad(nil, func(*Tx) error { return broken }, id+1, rowsUpTo(1))
	require.ErrorIs(t, err, broken)
	_, err = s.bulkLoad(nil, func(tx *Tx) error {
		_ = tx.abort(broken)
		return nil
	}, id+1, rowsUpTo(1))
	require.ErrorIs(t, err, broken, "the transaction is dead, whatever fn says")
	_, err = s.bulkLoad(nil, func(tx *Tx) error {
		require.NoError(t, tx.Create(id+1))
		_, err := tx.Put(id+1, []byte("k"), nil, 0)
		return err
	}, id+1, rowsUpTo(1))
	require.ErrorIs(t, err, ErrOrder, "not empty after fn")
	_, err = s.bulkLoad(nil, create(id+1), id+1, func(yield func(key, value []byte) bool) {
		_ = yield([]byte("b"), nil) && yield([]byte("a"), nil)
	})
	require.ErrorIs(t, err, ErrOrder)
	ctx, cancel := context.WithCancel(context.Background())
	_, err = s.bulkLoad(ctx, create(id+1), id+1, func(yield func(key, value []byte) bool) {
		for k, v := range rowsUpTo(5000) {
			if !yield(k, v) {
				return
			}
			cancel()
		}
	})
	require.ErrorIs(t, err, context.Canceled)
	require.Panics(t, func() {
		_, _ = s.bulkLoad(nil, create(id+1), id+1,
			func(func(key, value []byte) bool) { panic("in the rows") })
	})
	_, err = s.bulkLoad(ctx, nil, id, rowsUpTo(1))
	require.Error(t, err)
	// No page of the load is left, and the store takes commits.
	read = begin(t, s, false)
	require.False(t, read.Exists(id+1))
	read.Rollback()
	requireSound(t, s)
	update(t, s, func(tx *Tx) {
		mustPut(t, tx, id, []byte("z"), []byte("after"), 0)
	})
	require.NoError(t, s.Close())
	s = openTest(t, "/a.ebb", testOptions(fs))
	read = begin(t, s, false)
	require.Len(t, contents(t, read, id), 20001)
	read.Rollback()
	_, err = s.bulkLoad(nil, create(id+2), id+2, rowsUpTo(0))
	require.NoError(t, err, "an empty load is one too")
}

// TestBulkLoadThatFailsWaitsForItsWrites: no write to the pages that it frees is pending when they
// are allocated again.
func TestBulkLoadThatFailsWaitsForItsWrites(t *testing.T) {
	for name, last := range map[string]func(yield func(key, value []byte) bool){
		"error": func(yield func(key, value []byte) bool) { yield(nil, nil) },
		"panic": func(func(key, value []byte) bool) { panic("in the rows") },
		"exit":  func(func(key, value []byte) bool) { runtime.Goexit() },
	} {
		t.Run(name, func(t *testing.T) {
			fs := &watchedFS{FS: vfs.NewMemory()}
			o := testOptions(fs)
			o.Inline, o.CheckpointBytes = false, 1<<30
			s := openTest(t, "/a.ebb", o)
			writing, goOn := make(chan bool), make(chan bool)
			fs.wrote = func(off, n int64) {
				if n > 1<<16 {
					writing <- true
					<-goOn
				}
			}
			done := make(chan bool)
			go func() {
				defer close(done)
				defer func() { _ = recover() }()
				_, _ = s.bulkLoad(nil, create(9), 9, func(yield func(key, value []byte) bool) {
					for key, value := range wideRows(1200) { // more than one write, less than two
						yield(key, value)
					}
					<-writing
					last(yield)
				})
			}()
			select {
			case <-done:
				t.Fatal("a writer is still open")
			case <-time.After(20 * time.Millisecond): // time for a caller that does not wait to return
			}
			goOn <- true
			<-done
			fs.wrote = nil
			require.NoError(t, s.failure())
			update(t, s, func(tx *Tx) { require.NoError(t, tx.Create(9)) })
			requireSound(t, s)
		})
	}
}

// TestBulkLoadIsWrittenAsItGrows: a load of any size needs a buffer and no frames. One that fails
// late frees the pages that it has written, so that the next one reuses them.
func TestBulkLoadIsWrittenAsItGrows(t *testing.T) {
	s := openTest(t, "/a.ebb", testOptions(vfs.NewMemory()))
	const n = 5000
	load := func(id TreeID, last error) error {
		_, early := s.pg.Counters()
		frames, i := s.pg.Pool.FrameBytes(), 0
		_, err := s.bulkLoad(nil, create(id), id, func(yield func(key, value []byte) bool) {
			for key, value := range wideRows(n) {
				if i++; !yield(key, value) {
					return
				}
			}
			require.Equal(t, frames, s.pg.Pool.FrameBytes())
			_, late := s.pg.Counters()
			require.Greater(t, late-early, uint64(n/10))
			if last != nil {
				yield(nil, nil)
			}
		})
		return err
	}
	require.ErrorIs(t, load(8, ErrOrder), ErrOrder)
	pages := s.pg.Alloc.Pages()
	for range 3 {
		epoch := s.epoch
		require.ErrorIs(t, load(8, ErrOrder), ErrOrder)
		require.Greater(t, s.epoch, epoch, "what it has written is told from what will stand there")
	}
	require.NoError(t, load(8, nil))
	require.LessOrEqual(t, s.pg.Alloc.Pages(), pages+8, "besides them, the tree table and the free map")
	read := begin(t, s, false)
	defer read.Rollback()
	require.Len(t, contents(t, read, 8), n)
}
