package txn

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/internal/vfs"
)

// TestRunsThatCanBeSubmittedEarly are bounded.
func TestRunsThatCanBeSubmittedEarly(t *testing.T) {
	s := openTest(t, "/a.ebb", testOptions(vfs.NewMemory()))
	tx := begin(t, s, true)
	can := func(changes, bytes int) bool {
		r := Run{Tree: 9, Changes: make([]Change, changes)}
		for i := range r.Changes {
			r.Changes[i].Key = []byte{1}
			n := min(bytes, tree.MaxInline(4096, 1))
			r.Changes[i].Value = make([]byte, n)
			bytes -= n
		}
		return tx.CanSubmitLog([]Run{r})
	}
	require.False(t, can(100, 100), "there is no log")
	require.NoError(t, tx.Create(9))
	require.True(t, can(100, 100))
	require.False(t, can(defaultSubmitFrom-1, 100))
	require.False(t, can(1000, maxSubmitBytes+1))
	row := Change{Key: []byte{1}}
	for name, c := range map[string]Change{
		"a large value":          {Key: row.Key, Value: make([]byte, 4096)},
		"a key that is too long": {Key: make([]byte, 4096)},
		"a deletion of a value":  {Key: row.Key, Value: []byte{1}, Delete: true},
	} {
		require.False(t, tx.CanSubmitLog([]Run{{9, append(slices.Repeat([]Change{row}, 100), c)}}), name)
	}
	require.False(t, tx.CanSubmitLog([]Run{{9, slices.Repeat([]Change{row}, 100)},
		{77, []Change{row}}}), "no such tree")
	s.o.MaxTxnBytes = tx.Bytes() + 300
	require.False(t, can(100, 100))
	s.o.MaxTxnBytes = 1 << 30
	tx.SetDurability(NoSync)
	require.False(t, can(100, 100))
	tx.SetDurability(Sync)
	tx.Savepoint()
	require.False(t, can(100, 100), "a savepoint may take something back")
	tx.Rollback()
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
	_, err := s.bulkLoad(t.Context(), create(id), id, func(yield func(key, value []byte) bool) {
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
			changes[i] = Change{Key: key, Value: make([]byte, tree.MaxInline(pageSize, len(key)))}
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
			s := mustOpen(t, testOptions(fs))
			update(t, s, func(tx *Tx) { require.NoError(t, tx.Create(9)) })
			tx := begin(t, s, true)
			c := Change{Key: []byte("key"), Value: []byte("value")}
			require.NoError(t, tx.submitLog([]Run{{9, []Change{c}}}))
			if written {
				require.NoError(t, s.log.Wait(tx.w.submitted.end, true))
			}
			_ = s.fail(boom)
			_, err := tx.Put(9, c.Key, c.Value, 0)
			require.ErrorIs(t, err, ErrFailed)
			tx.Rollback()
			require.Equal(t, written, errors.Is(tx.Err(), ErrUnknown), "%v", tx.Err())
			left := copyFiles(t, fs)
			require.ErrorIs(t, s.Close(), boom)
			s = openTest(t, "/a.ebb", testOptions(left))
			read := begin(t, s, false)
			require.Equal(t, written, read.Rows(9) == 1, "that is what is in doubt")
			read.Rollback()
		})
	}
}
