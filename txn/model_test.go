package txn

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/pager"
)

// changes are all operations of a write transaction on tree id.
func changes(id TreeID) map[string]func(tx *Tx) error {
	key := []byte("k")
	return map[string]func(tx *Tx) error{
		"put":     func(tx *Tx) error { _, err := tx.Put(id, key, []byte("v"), 0); return err },
		"set_tag": func(tx *Tx) error { _, err := tx.SetTag(id, key, 5); return err },
		"delete":  func(tx *Tx) error { _, err := tx.Delete(id, key); return err },
		"apply": func(tx *Tx) error {
			return tx.Apply(id,
				[]Change{{Key: key}, {Key: key, Delete: true}}, nil)
		},
		"delete_range": func(tx *Tx) error { _, err := tx.DeleteRange(id, nil, key); return err },
		"drop":         func(tx *Tx) error { return tx.Drop(id) },
		"clear":        func(tx *Tx) error { return tx.Clear(id) },
	}
}

// TestTreeThatIsNotThere cannot be changed, holds nothing, and spoils no transaction.
func TestTreeThatIsNotThere(t *testing.T) {
	s := openTest(t, "/a.ebb", testOptions(vfs.NewMemory()))
	tx := begin(t, s, true)
	defer tx.Rollback()
	for name, change := range changes(99) {
		require.ErrorIs(t, change(tx), ErrNoTree, name)
	}
	_, _, found, err := tx.Get(99, []byte("k"))
	require.NoError(t, err)
	require.False(t, found)
	info, err := tx.Info(99, []byte("k"))
	require.NoError(t, err)
	require.False(t, info.Found)
	rank, err := tx.Rank(99, []byte("k"))
	require.NoError(t, err)
	require.Zero(t, rank)
	require.ErrorIs(t, tx.Create(CatalogTree), ErrNoTree, "it is there already")
	require.ErrorIs(t, tx.Create(trashBit|7), ErrNoTree, "dropped trees have such numbers")
	for _, n := range []int{0, -1} {
		_, err = tx.NewTreeIDs(n)
		require.Error(t, err)
	}
	require.NoError(t, tx.Err())
	require.NoError(t, tx.Create(99))
	for name, change := range changes(99) {
		// once it is dropped it is not there
		if err := change(tx); name != "drop" && !errors.Is(err, ErrNoTree) {
			require.NoError(t, err, name)
		}
	}
}

// TestFullTransactionRefusesEveryOperation before it changes anything, and can be committed as it
// is. What the last operation is more than its key and value goes past the limit.
func TestFullTransactionRefusesEveryOperation(t *testing.T) {
	o := testOptions(vfs.NewMemory())
	o.MaxTxnBytes = 100
	s := openTest(t, "/a.ebb", o)
	update(t, s, func(tx *Tx) {
		require.NoError(t, tx.Create(9))
		mustPut(t, tx, 9, []byte("k"), []byte("v"), 0)
	})
	update(t, s, func(tx *Tx) {
		mustPut(t, tx, 9, []byte("full"), make([]byte, 100-redoHead-4), 0)
		full := tx.Bytes()
		for name, change := range changes(9) {
			require.ErrorIs(t, change(tx), ErrTxnTooBig, name)
		}
		require.Equal(t, full, tx.Bytes())
		require.Equal(t, uint64(2), tx.Rows(9))
		require.NoError(t, tx.Err())
	})
}

// TestTransactionThatCannotWriteSaysSo: one that has ended, and one that was begun to read.
func TestTransactionThatCannotWriteSaysSo(t *testing.T) {
	s := openTest(t, "/a.ebb", testOptions(vfs.NewMemory()))
	update(t, s, func(tx *Tx) { require.NoError(t, tx.Create(9)) })
	for name, want := range map[string]error{"read": ErrReadOnly, "ended": ErrTxnDone} {
		t.Run(name, func(t *testing.T) {
			tx, err := s.Begin(t.Context(), name == "ended")
			require.NoError(t, err)
			sp := tx.Savepoint()
			if name == "ended" {
				tx.Rollback()
				_, err := tx.Info(9, []byte("k"))
				require.ErrorIs(t, err, ErrTxnDone)
				_, err = tx.Rank(9, []byte("k"))
				require.ErrorIs(t, err, ErrTxnDone)
			}
			for name, change := range changes(9) {
				require.ErrorIs(t, change(tx), want, name)
			}
			_, err = tx.NewTreeIDs(1)
			require.ErrorIs(t, err, want)
			require.ErrorIs(t, tx.RollbackTo(sp), want)
			require.ErrorIs(t, tx.RollbackTo(tx.Savepoint()), want)
			require.Zero(t, tx.Bytes())
			if name == "read" {
				require.NoError(t, tx.Commit(Sync), "it ends a transaction that reads")
			}
			require.ErrorIs(t, tx.Commit(Sync), ErrTxnDone)
		})
	}
}

// TestEndedTransactionLeavesTheNextAlone: calls on an ended transaction neither change the next one
// nor read it. The race detector reports reads.
func TestEndedTransactionLeavesTheNextAlone(t *testing.T) {
	begin := func(s *Store) *Tx {
		tx := begin(t, s, true)
		return tx
	}
	for name, end := range map[string]func(s *Store) (*Tx, Savepoint, *Cursor){
		"rolled back": func(s *Store) (*Tx, Savepoint, *Cursor) {
			tx := begin(s)
			sp, c := tx.Savepoint(), tx.Cursor(9)
			tx.Rollback()
			return tx, sp, c
		},
		"committed": func(s *Store) (*Tx, Savepoint, *Cursor) {
			tx := begin(s)
			sp, c := tx.Savepoint(), tx.Cursor(9)
			mustPut(t, tx, CatalogTree, []byte("k"), nil, 0)
			require.NoError(t, tx.Commit(Sync))
			return tx, sp, c
		},
		"committed with nothing": func(s *Store) (*Tx, Savepoint, *Cursor) {
			tx := begin(s)
			sp, c := tx.Savepoint(), tx.Cursor(9)
			require.NoError(t, tx.Commit(Sync))
			return tx, sp, c
		},
		"of a bulk load": func(s *Store) (tx *Tx, sp Savepoint, c *Cursor) {
			_, err := s.bulkLoad(t.Context(), func(its *Tx) error {
				tx, sp, c = its, its.Savepoint(), its.Cursor(9)
				return its.Create(10)
			}, 10, wideRows(3))
			require.NoError(t, err)
			return tx, sp, c
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := openTest(t, "/a.ebb", testOptions(vfs.NewMemory()))
			update(t, s, func(tx *Tx) { require.NoError(t, tx.Create(9)) })
			ended, sp, c := end(s)
			endedLeavesTheNextAlone(t, s, ended, sp, c)
		})
	}
}

func endedLeavesTheNextAlone(t *testing.T, s *Store, ended *Tx, sp Savepoint, old *Cursor) {
	require.True(t, ended.done)
	require.False(t, ended.read, "as it was")
	next := begin(t, s, true)
	began, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		close(began)
		for i := range 100 {
			_, err := next.Put(9, []byte{byte(i)}, []byte("v"), 0)
			assert.NoError(t, err)
			assert.NoError(t, next.RollbackTo(next.Savepoint()))
		}
	}()
	<-began
	rows := make([]Change, 20)
	for i := range rows {
		rows[i] = Change{Key: []byte{byte(i)}, Value: make([]byte, 2500)}
	}
	ended.SetDurability(NoSync)
	ended.SetMark(77)
	require.ErrorIs(t, ended.Apply(9, rows, nil), ErrTxnDone)
	for name, change := range changes(9) {
		require.ErrorIs(t, change(ended), ErrTxnDone, name)
	}
	require.ErrorIs(t, ended.RollbackTo(sp), ErrTxnDone)
	require.Zero(t, ended.Bytes())
	require.Zero(t, ended.Rows(9))
	require.Zero(t, ended.Stamp(9))
	require.False(t, ended.Exists(9))
	for _, c := range []*Cursor{old, ended.Cursor(9)} {
		require.False(t, c.First() || c.Last() || c.Seek(nil) || c.Next() || c.Prev() || c.Valid())
		require.ErrorIs(t, c.Err(), ErrTxnDone)
	}
	ended.Rollback()
	<-done
	require.False(t, next.w.relaxed)
	require.Equal(t, s.head.mark, next.Mark())
	require.NotEqual(t, int64(77), ended.Mark())
	require.Equal(t, uint64(100), next.Rows(9))
	require.NoError(t, next.Commit(Sync))
}

// TestOpenTransactionOfAStoreThatFails: a transaction that is open when a sync of the log fails, or a
// write of a checkpoint, can only be rolled back.
func TestOpenTransactionOfAStoreThatFails(t *testing.T) {
	broken := errors.New("broken")
	for name, fail := range map[string]func(s *Store, disk *crashfs.Disk) error{
		"log": func(s *Store, disk *crashfs.Disk) error {
			disk.Inject(crashfs.Fault{Kinds: crashfs.KindSyncs, Err: broken})
			err := s.Sync()
			require.ErrorIs(t, err, ErrUnknown, "of the commit before")
			return err
		},
		"checkpoint": func(s *Store, _ *crashfs.Disk) error { return s.fail(broken) },
	} {
		t.Run(name, func(t *testing.T) {
			disk := crashfs.New(crashfs.Options{})
			s := mustOpen(t, testOptions(disk))
			tx := begin(t, s, true)
			mustPut(t, tx, CatalogTree, []byte("k"), []byte("v"), 0)
			require.NoError(t, tx.Commit(NoSync))
			tx = begin(t, s, true)
			mustPut(t, tx, CatalogTree, []byte("in the middle"), nil, 0)

			require.ErrorIs(t, fail(s, disk), broken)
			for name, change := range changes(CatalogTree) {
				require.ErrorIs(t, change(tx), ErrFailed, name)
				tx.err = nil // each by itself
			}
			require.ErrorIs(t, tx.Commit(Sync), ErrFailed)
			require.True(t, tx.done)
			read := begin(t, s, false)
			require.Equal(t, map[string]string{"k": "v"}, contents(t, read, CatalogTree))
			read.Rollback()
			require.ErrorIs(t, s.Close(), ErrFailed)
		})
	}
}

// A waiting context notifies the test when a caller is about to wait for its end.
type waiting struct {
	context.Context
	came chan struct{}
}

func (w waiting) Done() <-chan struct{} {
	close(w.came)
	return w.Context.Done()
}

// TestWaitingWriterReturnsTheStickyError: the transaction before failed for good. A writer that waited
// behind it does not begin.
func TestWaitingWriterReturnsTheStickyError(t *testing.T) {
	for name, verb := range map[string]func(s *Store, ctx context.Context) error{
		"begin":      func(s *Store, ctx context.Context) error { _, err := s.Begin(ctx, true); return err },
		"checkpoint": func(s *Store, ctx context.Context) error { return s.Checkpoint(ctx) },
		"bulk_load": func(s *Store, ctx context.Context) error {
			_, err := s.bulkLoad(ctx, nil, 9, rowsUpTo(1))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := mustOpen(t, testOptions(vfs.NewMemory()))
			tx := begin(t, s, true)
			ctx := waiting{t.Context(), make(chan struct{})}
			got := make(chan error)
			go func() { got <- verb(s, ctx) }()
			<-ctx.came
			broken := errors.New("broken")
			_ = s.fail(broken)
			tx.Rollback()
			err := <-got
			require.ErrorIs(t, err, ErrFailed)
			require.ErrorIs(t, err, broken)
			require.ErrorIs(t, s.Close(), broken)
			require.ErrorIs(t, verb(s, t.Context()), ErrClosed)
		})
	}
}

// TestWaitForMaintenanceEndsWithItsContext: a checkpoint may take long.
func TestWaitForMaintenanceEndsWithItsContext(t *testing.T) {
	o := testOptions(vfs.NewMemory())
	o.MaxBytes, o.CheckpointBytes = 1<<30, 1
	s := openTest(t, "/a.ebb", o)
	s.checkpointer.running.Store(true) // from here on the log is larger than what starts a checkpoint
	update(t, s, func(tx *Tx) {
		mustPut(t, tx, CatalogTree, []byte("k"), nil, 0)
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	check := func() (kind string) {
		s.Check(ctx, func(p Problem) bool { kind = p.Kind; return true })
		return kind
	}
	require.NoError(t, lock(t.Context(), s.checkpointer.mu))
	require.ErrorIs(t, s.Checkpoint(ctx), context.Canceled)
	_, err := s.bulkLoad(ctx, nil, 9, rowsUpTo(1))
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, "incomplete", check())
	_, err = s.Begin(ctx, true)
	require.ErrorIs(t, err, context.Canceled, "it waits until the log is cut")
	s.checkpointer.running.Store(false)
	<-s.checkpointer.mu

	require.NoError(t, s.lockWriter(t.Context()))
	require.Equal(t, "incomplete", check())
	require.ErrorIs(t, s.Checkpoint(ctx), context.Canceled)
	s.unlockWriter()
}

// TestLargeValueIsReadInAWriteWithoutACopy: it lies in an extent, and that is not used again before
// the transaction ends.
func TestLargeValueIsReadInAWriteWithoutACopy(t *testing.T) {
	s := openTest(t, "/a.ebb", testOptions(vfs.NewMemory()))
	large := bytes.Repeat([]byte("x"), 100_000)
	update(t, s, func(tx *Tx) {
		mustPut(t, tx, CatalogTree, []byte("k"), large, 0)
	})
	update(t, s, func(tx *Tx) {
		v, _, found, err := tx.Get(CatalogTree, []byte("k"))
		require.NoError(t, err)
		require.True(t, found)
		mustDelete(t, tx, CatalogTree, []byte("k"))
		mustPut(t, tx, CatalogTree, []byte("k"), bytes.Repeat([]byte("y"), 100_000), 0)
		require.Equal(t, large, v)
		require.Empty(t, tx.w.valueCopies)
	})
}

// TestLargeRedoBufferIsFreed: a savepoint keeps the whole redo in memory, but not after the
// transaction.
func TestLargeRedoBufferIsFreed(t *testing.T) {
	s := openTest(t, "/a.ebb", testOptions(vfs.NewMemory()))
	update(t, s, func(tx *Tx) {
		tx.SetDurability(NoSync) // else the log names the values
		tx.Savepoint()
		for i := range 5 {
			mustPut(t, tx, CatalogTree, []byte{byte(i)}, make([]byte, redoChunk), 0)
		}
		require.Greater(t, cap(tx.w.redo), maxRedoBuffer)
	})
	require.LessOrEqual(t, cap(s.w.redo), maxRedoBuffer)
}

// TestDroppedLargeTreeIsFreedInSteps: writers begin between the steps.
func TestDroppedLargeTreeIsFreedInSteps(t *testing.T) {
	s := openTest(t, "/a.ebb", testOptions(vfs.NewMemory()))
	_, err := s.bulkLoad(t.Context(), create(9), 9, wideRows(9*reclaimStepPages))
	require.NoError(t, err)
	used := s.pg.Alloc.UsedPages()
	require.Greater(t, used, uint64(reclaimStepPages))
	update(t, s, func(tx *Tx) { require.NoError(t, tx.Drop(9)) })
	steps := 0
	for done := false; !done; steps++ {
		before := s.pg.Alloc.UsedPages()
		done, err = s.checkpointer.reclaimTreesStep(t.Context())
		require.NoError(t, err)
		require.LessOrEqual(t, before-s.pg.Alloc.UsedPages(), uint64(reclaimStepPages+10))
	}
	require.Greater(t, steps, 2)
	require.Less(t, s.pg.Alloc.UsedPages(), uint64(50))
	require.NoError(t, s.Checkpoint(t.Context()))
}

// TestLastEpochIsTheEnd: the next one would pass for an older one.
func TestLastEpochIsTheEnd(t *testing.T) {
	s := mustOpen(t, testOptions(vfs.NewMemory()))
	update(t, s, func(tx *Tx) { require.NoError(t, tx.Create(9)) })
	s.epoch = pager.MaxEpoch
	err := s.Checkpoint(t.Context())
	require.ErrorIs(t, err, ErrFailed)
	require.ErrorContains(t, err, "copy the store into a new one")
	require.ErrorIs(t, s.Close(), ErrFailed)
}

// TestDefaultsWithABoundOnBytes: the log counts too, so that its segments are small where the bound
// is.
func TestDefaultsWithABoundOnBytes(t *testing.T) {
	require.Equal(t, vfs.OS, Options{}.withDefaults().FS)
	for bound, want := range map[int64]int64{
		0: DefaultSegmentSize, 1: minBoundSegment, 64 << 20: 1 << 20, 1 << 40: DefaultSegmentSize,
	} {
		require.Equal(t, want, Options{MaxBytes: bound}.withDefaults().SegmentSize, "bound %d", bound)
	}
}
