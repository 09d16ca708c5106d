package cf

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/golden"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/txn"
)

// sequenceStore opens a store in memory with one family.
func sequenceStore(t *testing.T) (*txn.Store, *Family) {
	t.Helper()
	s, err := txn.Open("test.ebb", txn.Options{FS: vfs.NewMemory()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	var f *Family
	write(t, s, func(tx *txn.Tx) {
		f, err = Create(tx, "a", Options{})
		require.NoError(t, err)
	})
	return s, f
}

func write(t *testing.T, s *txn.Store, fn func(tx *txn.Tx)) {
	t.Helper()
	tx, err := s.Begin(t.Context(), true)
	require.NoError(t, err)
	defer tx.Rollback()
	fn(tx)
	require.NoError(t, tx.Commit(txn.NoSync))
}

func last(t *testing.T, s *txn.Store, f *Family) uint64 {
	t.Helper()
	tx, err := s.Begin(t.Context(), false)
	require.NoError(t, err)
	defer tx.Rollback()
	n, err := Sequence(tx, f)
	require.NoError(t, err)
	return n
}

func findings(t *testing.T, s *txn.Store) (all []string) {
	t.Helper()
	tx, err := s.Begin(t.Context(), false)
	require.NoError(t, err)
	defer tx.Rollback()
	Check(tx, func(family string, err error) bool {
		require.ErrorIs(t, err, badfile.ErrCorrupt)
		all = append(all, family+": "+err.Error())
		return true
	})
	return all
}

func TestSequenceBytesArePinned(t *testing.T) {
	golden.Require(t, "metadata.hex", `value of the metadata row "sequence-last"`, golden.Row(
		golden.Part{Size: 8, Remark: "number 258 was returned last"},
	), appendSequence(nil, 258))
	got, err := decodeSequence("a", golden.Read(t, "testdata/metadata.hex"))
	require.NoError(t, err)
	require.Equal(t, uint64(258), got)
}

func TestSequenceCountsPerFamilyAndRollsBack(t *testing.T) {
	s, f := sequenceStore(t)
	require.Zero(t, last(t, s, f))
	write(t, s, func(tx *txn.Tx) {
		g, err := Create(tx, "b", Options{})
		require.NoError(t, err)
		for want := uint64(1); want <= 3; want++ {
			got, err := NextSequence(tx, f)
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
		sp := tx.Savepoint()
		got, err := NextSequence(tx, g)
		require.NoError(t, err)
		require.Equal(t, uint64(1), got)
		require.NoError(t, tx.RollbackTo(sp))
		require.False(t, tx.Exists(g.Metadata()), "the tree is rolled back with the number")
	})
	require.Equal(t, uint64(3), last(t, s, f))
	tx, err := s.Begin(t.Context(), true)
	require.NoError(t, err)
	_, err = NextSequence(tx, f)
	require.NoError(t, err)
	tx.Rollback()
	require.Equal(t, uint64(3), last(t, s, f))
	require.Empty(t, findings(t, s))
}

// TestSequenceFollowsTheFamily: a rename keeps it, a drop ends it.
func TestSequenceFollowsTheFamily(t *testing.T) {
	s, f := sequenceStore(t)
	write(t, s, func(tx *txn.Tx) {
		_, err := NextSequence(tx, f)
		require.NoError(t, err)
		require.NoError(t, tx.Clear(f.Data()))
		require.NoError(t, Rename(tx, "a", "b"))
		renamed, err := Lookup(tx, "b")
		require.NoError(t, err)
		n, err := NextSequence(tx, renamed)
		require.NoError(t, err)
		require.Equal(t, uint64(2), n)
	})
	write(t, s, func(tx *txn.Tx) {
		require.NoError(t, Drop(tx, "b"))
		require.False(t, tx.Exists(f.Metadata()))
		again, err := Create(tx, "b", Options{})
		require.NoError(t, err)
		n, err := NextSequence(tx, again)
		require.NoError(t, err)
		require.Equal(t, uint64(1), n)
	})
	require.Empty(t, findings(t, s))
}

func TestSequenceEndsAtTheLargestNumber(t *testing.T) {
	s, f := sequenceStore(t)
	write(t, s, func(tx *txn.Tx) {
		require.NoError(t, tx.Create(f.Metadata()))
		_, err := tx.Put(f.Metadata(), []byte(sequenceKey), appendSequence(nil, math.MaxUint64-1), 0)
		require.NoError(t, err)
		n, err := NextSequence(tx, f)
		require.NoError(t, err)
		require.Equal(t, uint64(math.MaxUint64), n)
		_, err = NextSequence(tx, f)
		require.ErrorIs(t, err, ErrSequenceEnd)
	})
	require.Equal(t, uint64(math.MaxUint64), last(t, s, f))
}

// TestSequenceRefusedForSizeChangesNothing: no tree without a row is left in the transaction.
func TestSequenceRefusedForSizeChangesNothing(t *testing.T) {
	s, err := txn.Open("test.ebb", txn.Options{FS: vfs.NewMemory(), MaxTxnBytes: 4096})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	var f *Family
	write(t, s, func(tx *txn.Tx) {
		f, err = Create(tx, "a", Options{})
		require.NoError(t, err)
	})
	write(t, s, func(tx *txn.Tx) {
		for err == nil {
			_, err = tx.Put(f.Data(), []byte("k"), make([]byte, 30), 0)
		}
		require.ErrorIs(t, err, txn.ErrTxnTooBig)
		_, err := NextSequence(tx, f)
		require.ErrorIs(t, err, txn.ErrTxnTooBig)
		require.False(t, tx.Exists(f.Metadata()))
	})
	require.Empty(t, findings(t, s))
}

func TestMetadataThatDoesNotHoldItsPromisesIsCorrupt(t *testing.T) {
	for _, test := range []struct {
		name, key string
		value     []byte
		want      string
	}{
		{"unknown_row", "sequence", appendSequence(nil, 1), `unknown row "sequence"`},
		{"empty", sequenceKey, nil, "of 0 bytes, expected 8"},
		{"short", sequenceKey, make([]byte, 7), "of 7 bytes, expected 8"},
		{"long", sequenceKey, make([]byte, 9), "of 9 bytes, expected 8"},
		{"zero", sequenceKey, make([]byte, 8), "is 0"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, f := sequenceStore(t)
			write(t, s, func(tx *txn.Tx) {
				require.NoError(t, tx.Create(f.Metadata()))
				_, err := tx.Put(f.Metadata(), []byte(test.key), test.value, 0)
				require.NoError(t, err)
			})
			all := findings(t, s)
			require.Len(t, all, 1)
			require.Contains(t, all[0], test.want)
			if test.key != sequenceKey {
				return
			}
			write(t, s, func(tx *txn.Tx) {
				_, err := NextSequence(tx, f)
				require.ErrorIs(t, err, badfile.ErrCorrupt)
			})
		})
	}
}
