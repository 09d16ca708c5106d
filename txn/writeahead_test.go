package txn

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/internal/vfs"
)

// TestTransactionMatchesItsSubmittedRedo: a transaction that does more, less or something else than
// its submitted redo commits nothing, and the log revokes the record.
func TestTransactionMatchesItsSubmittedRedo(t *testing.T) {
	row := func(i int) Change { return Change{Key: fmt.Append(nil, i), Value: []byte("value")} }
	for name, do := range map[string]func(tx *Tx) error{
		"less": func(tx *Tx) error {
			c := row(0)
			return tx.Apply(9, []Change{c}, nil)
		},
		"more": func(tx *Tx) error {
			return tx.Apply(9, []Change{row(0), row(1), row(2)}, nil)
		},
		"one more": func(tx *Tx) error {
			if err := tx.Apply(9, []Change{row(0), row(1)}, nil); err != nil {
				return err
			}
			_, err := tx.Put(9, []byte("more"), nil, 0)
			return err
		},
		"a deletion more, of nothing": func(tx *Tx) error {
			if err := tx.Apply(9, []Change{row(0), row(1)}, nil); err != nil {
				return err
			}
			_, err := tx.Delete(9, []byte("more"))
			return err
		},
		"deletions more, of nothing": func(tx *Tx) error {
			return tx.Apply(9, []Change{row(0), row(1), {Key: []byte("a"), Delete: true}, {Key: []byte("b"), Delete: true}}, nil)
		},
		"a tag more": func(tx *Tx) error {
			if err := tx.Apply(9, []Change{row(0), row(1)}, nil); err != nil {
				return err
			}
			_, err := tx.SetTag(9, []byte("a"), 7)
			return err
		},
		"a range": func(tx *Tx) error {
			_, err := tx.DeleteRange(9, []byte("a"), nil)
			return err
		},
		"a tag":  func(tx *Tx) error { _, err := tx.SetTag(9, []byte("a"), 7); return err },
		"a tree": func(tx *Tx) error { return tx.Create(10) },
		"a number": func(tx *Tx) error {
			_, err := tx.NewTreeIDs(1)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			fs := vfs.NewMemory()
			s, err := Open("/a.ebb", testOptions(fs))
			require.NoError(t, err)
			update(t, s, func(tx *Tx) {
				require.NoError(t, tx.Create(9))
				_, err := tx.Put(9, []byte("a"), []byte("before"), 0)
				require.NoError(t, err)
			})
			tx, err := s.Begin(t.Context(), true)
			require.NoError(t, err)
			require.True(t, tx.CanSubmitLog(1, defaultSubmitFrom, 100, 10))
			for i := range 2 {
				c := row(i)
				tx.EncodeRedo(9, &c)
			}
			require.NoError(t, tx.SubmitLog())
			require.True(t, tx.LogSubmitted())
			require.False(t, tx.CanSubmitLog(1, defaultSubmitFrom, 100, 10), "twice")
			if err := do(tx); err != nil {
				require.ErrorIs(t, err, errLogMismatch)
				tx.Rollback()
			} else {
				require.ErrorIs(t, tx.Commit(Sync), errLogMismatch)
			}
			require.False(t, tx.LogSubmitted())
			require.NoError(t, s.failure())
			update(t, s, func(tx *Tx) { _, err := tx.Put(9, []byte("next"), nil, 0); require.NoError(t, err) })
			left := copyFiles(t, fs)
			require.NoError(t, s.Abandon())
			s = openTest(t, "/a.ebb", testOptions(left))
			tx, err = s.Begin(t.Context(), false)
			require.NoError(t, err)
			require.EqualValues(t, 2, tx.Rows(9))
			tx.Rollback()
		})
	}
}

// TestOperationsThatCanBeSubmittedEarly are bounded.
func TestOperationsThatCanBeSubmittedEarly(t *testing.T) {
	s := openTest(t, "/a.ebb", testOptions(vfs.NewMemory()))
	tx, err := s.Begin(t.Context(), true)
	require.NoError(t, err)
	require.False(t, tx.CanSubmitLog(1, 100, 100, 10), "there is no log")
	require.NoError(t, tx.Create(9))
	require.True(t, tx.CanSubmitLog(1, 100, 100, 10))
	require.False(t, tx.CanSubmitLog(1, defaultSubmitFrom-1, 100, 10))
	require.False(t, tx.CanSubmitLog(1, 100, maxSubmitBytes+1, 10))
	require.False(t, tx.CanSubmitLog(1, 100, 100, 4096))
	require.False(t, tx.CanSubmitLog(1, 100, int(min(s.o.MaxTxnBytes, math.MaxInt)), 10))
	tx.SetDurability(NoSync)
	require.False(t, tx.CanSubmitLog(1, 100, 100, 10))
	tx.SetDurability(Sync)
	sp := tx.Savepoint()
	require.False(t, tx.CanSubmitLog(1, 100, 100, 10), "a savepoint may take something back")
	_ = sp
	tx.Rollback()
	require.False(t, tx.CanSubmitLog(1, 100, 100, 10))
	read, err := s.Begin(t.Context(), false)
	require.NoError(t, err)
	require.False(t, read.CanSubmitLog(1, 100, 100, 10))
	require.False(t, read.LogSubmitted())
	read.Rollback()
}

// TestLargeRowsAmongSmallOnesHaveTheirPages: in the middle of a leaf of small rows that are alike,
// each splits two.
func TestLargeRowsAmongSmallOnesHaveTheirPages(t *testing.T) {
	o := testOptions(vfs.NewMemory())
	o.CacheBytes, o.CheckpointBytes = 16<<20, 1<<30
	s := openTest(t, "/a.ebb", o)
	const pageSize, leaves, rows = 4096, 200, (4096 - 40) / (6 + 16)
	var id TreeID
	update(t, s, func(tx *Tx) {
		var err error
		id, err = tx.NewTreeIDs(1)
		require.NoError(t, err)
	})
	_, err := s.BulkLoad(t.Context(), create(id), id, func(yield func(key, value []byte) bool) {
		for i := range uint64(leaves * rows) {
			if !yield(binary.BigEndian.AppendUint64(nil, i), make([]byte, 8)) {
				return
			}
		}
	})
	require.NoError(t, err)
	update(t, s, func(tx *Tx) {
		changes, bytes := make([]Change, leaves), 0
		for i := range changes {
			key := make([]byte, tree.MaxKey(pageSize))
			binary.BigEndian.PutUint64(key, uint64(i*rows+rows/2))
			changes[i] = Change{Key: key, Value: make([]byte, tree.MaxInline(pageSize))}
			bytes += len(key) + len(changes[i].Value)
		}
		require.Less(t, bytes, maxSubmitBytes)
		promised := tx.w.pagesFor(leaves, bytes)
		require.NoError(t, tx.Apply(id, changes, nil))
		require.Greater(t, tx.w.allocated.len(), 3*leaves)
		require.LessOrEqual(t, uint64(tx.w.allocated.len()), promised)
	})
}

// TestFailedStoreWritesNoRevocation: a record that was written is in doubt, and a record that was not
// written is not in the log.
func TestFailedStoreWritesNoRevocation(t *testing.T) {
	boom := errors.New("boom")
	for _, written := range []bool{false, true} {
		t.Run(fmt.Sprintf("written_%v", written), func(t *testing.T) {
			fs := vfs.NewMemory()
			s, err := Open("/a.ebb", testOptions(fs))
			require.NoError(t, err)
			update(t, s, func(tx *Tx) { require.NoError(t, tx.Create(9)) })
			tx, err := s.Begin(t.Context(), true)
			require.NoError(t, err)
			c := Change{Key: []byte("key"), Value: []byte("value")}
			tx.EncodeRedo(9, &c)
			require.NoError(t, tx.SubmitLog())
			if written {
				require.NoError(t, s.log.Wait(tx.w.submitted.end, true))
			}
			_ = s.fail(boom)
			_, err = tx.Put(9, c.Key, c.Value, 0)
			require.ErrorIs(t, err, ErrFailed)
			tx.Rollback()
			require.Equal(t, written, errors.Is(tx.Err(), ErrUnknown), "%v", tx.Err())
			left := copyFiles(t, fs)
			require.ErrorIs(t, s.Close(), boom)
			s = openTest(t, "/a.ebb", testOptions(left))
			read, err := s.Begin(t.Context(), false)
			require.NoError(t, err)
			require.Equal(t, written, read.Rows(9) == 1, "that is what is in doubt")
			read.Rollback()
		})
	}
}
