package cf

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/golden"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/txn"
)

// partitioned creates the time-partitioned family "p", of that width, in the store of sequenceStore.
func partitioned(t *testing.T, width int64) (*txn.Store, *Family) {
	t.Helper()
	s, _ := sequenceStore(t)
	var f *Family
	write(t, s, func(tx *txn.Tx) {
		var err error
		f, err = Create(tx, "p", Options{RetentionMs: 100, PartitionMs: width})
		require.NoError(t, err)
	})
	return s, f
}

func ensure(t *testing.T, tx *txn.Tx, f *Family, ms int64) Partition {
	t.Helper()
	p, err := EnsurePartition(tx, f, ms, 0)
	require.NoError(t, err)
	require.True(t, p.Start <= ms && ms <= p.Last)
	found, ok, err := FindPartition(tx, f, ms)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, p, found)
	return p
}

// putPartition writes a row of the directory past the rules.
func putPartition(tx *txn.Tx, f *Family, p Partition) error {
	_, err := tx.Put(f.Metadata(), appendPartitionKey(nil, p.Start), appendPartition(nil, p), 0)
	return err
}

func TestPartitionBytesArePinned(t *testing.T) {
	p := Partition{Start: -2, Last: 0x0102, Tree: 7}
	row := append(appendPartitionKey(nil, p.Start), appendPartition(nil, p)...)
	golden.Require(t, "partition.hex", "key and value of a row of the partition directory", golden.Row(
		golden.Part{Size: len(partitionPrefix), Remark: "partition-"},
		golden.Part{Size: 8, Remark: "start -2, sign bit flipped, big-endian"},
		golden.Part{Size: 8, Remark: "last 258"},
		golden.Part{Size: 8, Remark: "tree 7"},
	), row)
	b := golden.Read(t, "testdata/partition.hex")
	got, err := decodePartition("p", b[:partitionKey], b[partitionKey:])
	require.NoError(t, err)
	require.Equal(t, p, got)
}

func TestPartitionsAreAlignedAndNeverOverlap(t *testing.T) {
	for _, c := range []struct {
		name        string
		ms, width   int64
		start, last int64
	}{
		{"zero", 0, 10, 0, 9},
		{"last of one", 9, 10, 0, 9},
		{"negative", -1, 10, -10, -1},
		{"first of a negative one", -10, 10, -10, -1},
		{"lowest", math.MinInt64, 10, math.MinInt64, math.MinInt64 + 7},
		{"highest", math.MaxInt64, 10, math.MaxInt64 - 7, math.MaxInt64},
		{"width of half of time", -5, math.MaxInt64, -math.MaxInt64, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, Partition{Start: c.start, Last: c.last}, alignedPartition(c.ms, c.width))
		})
	}
	s, f := partitioned(t, 10)
	write(t, s, func(tx *txn.Tx) {
		a, b := ensure(t, tx, f, 15), ensure(t, tx, f, 35)
		wide := *f
		wide.Options.PartitionMs = 100
		c := ensure(t, tx, &wide, 25)
		require.Equal(t, [2]int64{20, 29}, [2]int64{c.Start, c.Last}, "between two others")
		d := ensure(t, tx, &wide, 41)
		require.Equal(t, [2]int64{40, 99}, [2]int64{d.Start, d.Last})
		require.Equal(t, a, ensure(t, tx, f, 10))
		all, err := AllPartitions(tx, f)
		require.NoError(t, err)
		require.Equal(t, []Partition{a, c, b, d}, all)
		_, ok, err := FindPartition(tx, f, 9)
		require.NoError(t, err)
		require.False(t, ok)
	})
	require.Empty(t, findings(t, s))
}

// TestDropTakesTheTreesOfPartitions: a tree that stays cannot be reached, and its pages leak.
func TestDropTakesTheTreesOfPartitions(t *testing.T) {
	s, f := partitioned(t, 10)
	var list []Partition
	write(t, s, func(tx *txn.Tx) {
		for ms := int64(0); ms < 50; ms += 10 {
			list = append(list, ensure(t, tx, f, ms))
		}
		require.NoError(t, Rename(tx, "p", "q"))
		require.NoError(t, DropPartitions(tx, f, list[:2]))
		left, err := AllPartitions(tx, f)
		require.NoError(t, err)
		require.Equal(t, list[2:], left)
	})
	require.Empty(t, findings(t, s))
	write(t, s, func(tx *txn.Tx) {
		require.NoError(t, Drop(tx, "q"))
		for _, p := range list {
			require.False(t, tx.Exists(p.Tree))
		}
	})
	require.Empty(t, findings(t, s))
}

// TestDamagedPartitionDirectoryIsFound, each kind of damage once.
func TestDamagedPartitionDirectoryIsFound(t *testing.T) {
	for _, c := range []struct {
		want   string
		damage func(tx *txn.Tx, f *Family, p Partition) error
	}{
		{"partition from 10 to 9", func(tx *txn.Tx, f *Family, p Partition) error {
			return putPartition(tx, f, Partition{10, 9, p.Tree})
		}},
		{"partition 10 has tree 1", func(tx *txn.Tx, f *Family, p Partition) error {
			return putPartition(tx, f, Partition{10, 19, 1})
		}},
		{"partition of 18 and 3 bytes", func(tx *txn.Tx, f *Family, p Partition) error {
			_, err := tx.Put(f.Metadata(), appendPartitionKey(nil, 10), []byte("abc"), 0)
			return err
		}},
		{"partition of 11 and 16 bytes", func(tx *txn.Tx, f *Family, p Partition) error {
			_, err := tx.Put(f.Metadata(), []byte("partition-x"), make([]byte, 16), 0)
			return err
		}},
		{"partition 10: tree 999 is missing", func(tx *txn.Tx, f *Family, p Partition) error {
			return putPartition(tx, f, Partition{10, 19, 999})
		}},
		{"partition 15 begins within the one up to 19", func(tx *txn.Tx, f *Family, p Partition) error {
			return putPartition(tx, f, Partition{15, 19, p.Tree})
		}},
		{"belongs to families \"p\" and \"p\"", func(tx *txn.Tx, f *Family, p Partition) error {
			return putPartition(tx, f, Partition{20, 29, p.Tree})
		}},
		{"partition 10 in a family of keys", func(tx *txn.Tx, f *Family, p Partition) error {
			return put(tx, &Family{Name: f.Name, Base: f.Base})
		}},
		{"belongs to no family", func(tx *txn.Tx, f *Family, p Partition) error {
			_, err := tx.Delete(f.Metadata(), appendPartitionKey(nil, 10))
			return err
		}},
	} {
		t.Run(c.want, func(t *testing.T) {
			s, f := partitioned(t, 10)
			write(t, s, func(tx *txn.Tx) {
				require.NoError(t, c.damage(tx, f, ensure(t, tx, f, 10)))
			})
			all := findings(t, s)
			require.Contains(t, strings.Join(all, "\n"), c.want)
		})
	}
}

// TestPartitionRefusedForSizeChangesNothing: the transaction may still commit.
func TestPartitionRefusedForSizeChangesNothing(t *testing.T) {
	s, err := txn.Open("test.ebb", txn.Options{FS: vfs.NewMemory(), MaxTxnBytes: 4096})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	write(t, s, func(tx *txn.Tx) {
		f, err := Create(tx, "p", Options{RetentionMs: 100, PartitionMs: 10})
		require.NoError(t, err)
		before := len(tx.Trees())
		_, err = EnsurePartition(tx, f, 5, 4096)
		require.ErrorIs(t, err, txn.ErrTxnTooBig)
		require.Len(t, tx.Trees(), before)
		_, err = decodePartition("p", nil, nil)
		require.ErrorIs(t, err, badfile.ErrCorrupt)
	})
}
