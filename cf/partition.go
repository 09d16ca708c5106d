package cf

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/txn"
)

// A Partition is one tree of a time-partitioned family: the rows whose timestamps, in milliseconds
// since the Unix epoch, are in [Start, Last].
type Partition struct {
	Start, Last int64
	Tree        txn.TreeID
}

// The partition directory of a family is a part of its metadata tree: one row for each partition, in
// the order of time. Partitions do not overlap, but there may be gaps between them.
//
//	key    "partition-", start: i64 with the sign bit flipped, big-endian
//	value  0 last i64   8 tree u64, little-endian
//
// last is inclusive, so that a partition can end with the largest int64; it is not below start. The
// end is stored because AlterCF changes the width of partitions to come. No two partitions share a
// tree. A partition is created in the transaction of its first row and dropped with its directory
// row, so after a crash both are there or neither is. Golden bytes: testdata/partition.hex.
const (
	partitionPrefix = "partition-"
	partitionsEnd   = "partition." // above every key with the prefix
	instantSize     = 8
	partitionKey    = len(partitionPrefix) + instantSize
	partitionSize   = 16
)

// Log bytes of a new partition, and of a dropped one, with reserve.
const (
	createPartitionBytes = 160
	dropPartitionBytes   = 64
)

// Partitioned says that the family keeps its rows by time, in partitions.
func (f *Family) Partitioned() bool { return f.Options.PartitionMs > 0 }

// AppendInstant appends ms in a form whose bytes have the order of the numbers.
func AppendInstant(b []byte, ms int64) []byte {
	return binary.BigEndian.AppendUint64(b, uint64(ms)^1<<63)
}

// DecodeInstant is the inverse of AppendInstant; b has at least 8 bytes.
func DecodeInstant(b []byte) (ms int64) { return int64(binary.BigEndian.Uint64(b) ^ 1<<63) }

func appendPartitionKey(b []byte, start int64) []byte {
	return AppendInstant(append(b, partitionPrefix...), start)
}

func appendPartition(b []byte, p Partition) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(p.Last))
	return binary.LittleEndian.AppendUint64(b, uint64(p.Tree))
}

// decodePartition verifies the layout above. Its errors are *badfile.Error.
func decodePartition(family string, key, value []byte) (Partition, error) {
	bad := func(format string, args ...any) (Partition, error) {
		detail := fmt.Sprintf(format, args...)
		return Partition{}, badfile.At("", -1, "metadata: family %q: %s", family, detail)
	}
	if len(key) != partitionKey || len(value) != partitionSize {
		return bad("partition of %d and %d bytes, expected %d and %d",
			len(key), len(value), partitionKey, partitionSize)
	}
	p := Partition{
		Start: DecodeInstant(key[len(partitionPrefix):]),
		Last:  int64(binary.LittleEndian.Uint64(value)),
		Tree:  txn.TreeID(binary.LittleEndian.Uint64(value[8:])),
	}
	switch {
	case p.Last < p.Start:
		return bad("partition from %d to %d", p.Start, p.Last)
	case p.Tree <= txn.CatalogTree:
		return bad("partition %d has tree %d", p.Start, p.Tree)
	}
	return p, nil
}

// DecodeMetadata decodes a row of a metadata tree: a partition, or the sequence of the family, whose
// p is nil. The error of any other row is a *badfile.Error.
func DecodeMetadata(key, value []byte) (p *Partition, err error) {
	if string(key) == sequenceKey {
		_, err = decodeSequence("", value)
		return nil, err
	}
	part, err := decodePartition("", key, value)
	if err == nil && !strings.HasPrefix(string(key), partitionPrefix) {
		err = badfile.At("", -1, "metadata: unknown row %q", key)
	}
	return &part, err
}

// Partitions walks the partition directory of one family in the order of time. The transaction may
// change the directory meanwhile.
type Partitions struct {
	f *Family
	c txn.Cursor
}

// Partitions returns a walk without a position.
func (f *Family) Partitions(tx *txn.Tx) *Partitions {
	w := &Partitions{f: f}
	w.c.Init(tx, f.Metadata())
	w.c.Bound([]byte(partitionPrefix), []byte(partitionsEnd))
	return w
}

// First moves to the first partition that ends at ms or later; ok is false if there is none.
func (w *Partitions) First(ms int64) (p Partition, ok bool, err error) {
	if p, ok, err = w.Last(ms); err != nil || ok && p.Last >= ms {
		return p, ok, err
	}
	var key [partitionKey]byte
	return w.at(w.c.Seek(appendPartitionKey(key[:0], ms)))
}

// Last moves to the last partition that begins at ms or earlier; ok is false if there is none.
func (w *Partitions) Last(ms int64) (p Partition, ok bool, err error) {
	if ms == math.MaxInt64 {
		return w.at(w.c.SeekBefore([]byte(partitionsEnd)))
	}
	var key [partitionKey]byte
	return w.at(w.c.SeekBefore(appendPartitionKey(key[:0], ms+1)))
}

// Next moves to the next partition; ok is false if there is none.
func (w *Partitions) Next() (p Partition, ok bool, err error) { return w.at(w.c.Next()) }

// at decodes the row of the cursor. Rows of other kinds end the walk.
func (w *Partitions) at(ok bool) (p Partition, found bool, err error) {
	if !ok {
		return Partition{}, false, w.c.Err()
	}
	key := w.c.Key()
	if string(key) < partitionPrefix || string(key) >= partitionsEnd {
		return Partition{}, false, nil
	}
	value := w.c.Value()
	if err := w.c.Err(); err != nil {
		return Partition{}, false, err
	}
	p, err = decodePartition(w.f.Name, key, value)
	return p, err == nil, err
}

// FindPartition returns the partition of a timestamp; ok is false if there is none.
func FindPartition(tx *txn.Tx, f *Family, ms int64) (p Partition, ok bool, err error) {
	p, ok, err = f.Partitions(tx).Last(ms)
	return p, ok && ms <= p.Last, err
}

// EnsurePartition returns the partition of a timestamp, which it creates if it is absent: of the
// family's width, less where neighbours of another width leave less. It creates one only if more log
// bytes fit behind it, for the row.
func EnsurePartition(tx *txn.Tx, f *Family, ms int64, more int) (Partition, error) {
	w := f.Partitions(tx)
	before, ok, err := w.Last(ms)
	if err != nil || ok && ms <= before.Last {
		return before, err
	}
	p := alignedPartition(ms, f.Options.PartitionMs)
	if ok {
		p.Start = max(p.Start, before.Last+1)
	}
	if behind, ok, err := w.First(ms); err != nil {
		return Partition{}, err
	} else if ok {
		p.Last = min(p.Last, behind.Start-1)
	}
	if err := tx.EnsureTxnBytes(createPartitionBytes + more); err != nil {
		return Partition{}, err
	}
	if err := ensureMetadata(tx, f); err != nil {
		return Partition{}, err
	}
	if p.Tree, err = tx.NewTreeIDs(1); err != nil {
		return Partition{}, err
	}
	if err := tx.Create(p.Tree); err != nil {
		return Partition{}, err
	}
	_, err = tx.Put(f.Metadata(), appendPartitionKey(nil, p.Start), appendPartition(nil, p), 0)
	return p, err
}

// alignedPartition is the partition of ms at multiples of width, cut at the ends of an int64.
func alignedPartition(ms, width int64) Partition {
	into := ms % width
	if into < 0 {
		into += width
	}
	p := Partition{Start: math.MinInt64, Last: math.MaxInt64}
	if ms >= math.MinInt64+into {
		p.Start = ms - into
	}
	if rest := width - 1 - into; ms <= math.MaxInt64-rest {
		p.Last = ms + rest
	}
	return p
}

// ListPartitions lists partitions in the order of time, up to the first that want refuses.
func ListPartitions(tx *txn.Tx, f *Family, want func(Partition) bool) (list []Partition, err error) {
	w := f.Partitions(tx)
	p, ok, err := w.First(math.MinInt64)
	for ; ok && want(p); p, ok, err = w.Next() {
		list = append(list, p)
	}
	return list, err
}

// AllPartitions lists every partition in the order of time.
func AllPartitions(tx *txn.Tx, f *Family) ([]Partition, error) {
	return ListPartitions(tx, f, func(Partition) bool { return true })
}

// DropPartitions removes partitions and their rows, in time independent of the number of rows: all
// of them, or none if they do not fit into the transaction.
func DropPartitions(tx *txn.Tx, f *Family, list []Partition) error {
	if err := tx.EnsureTxnBytes(len(list) * dropPartitionBytes); err != nil {
		return err
	}
	for _, p := range list {
		if err := tx.Drop(p.Tree); err != nil {
			return err
		}
		if _, err := tx.Delete(f.Metadata(), appendPartitionKey(nil, p.Start)); err != nil {
			return err
		}
	}
	return nil
}

// DropLostPartitions removes the partitions of a salvaged family whose trees are missing.
func DropLostPartitions(tx *txn.Tx, f *Family) error {
	list, err := AllPartitions(tx, f)
	if err != nil {
		return err
	}
	for _, p := range list {
		if tx.Exists(p.Tree) {
			continue
		}
		if _, err := tx.Delete(f.Metadata(), appendPartitionKey(nil, p.Start)); err != nil {
			return err
		}
	}
	return nil
}

// EachTree visits the numbers of all trees of the family, of those that need not exist too. An error
// is that of the partition directory, whose trees may be missing then.
func EachTree(tx *txn.Tx, f *Family, visit func(txn.TreeID)) error {
	for id := f.Base; id < f.Base+treesPerFamily && !f.NoTrees(); id++ {
		visit(id)
	}
	if !f.Partitioned() {
		return nil
	}
	_, err := ListPartitions(tx, f, func(p Partition) bool {
		visit(p.Tree)
		return true
	})
	return err
}

// checkPartitions verifies the partition directory of a family, and returns the first finding: every
// row decodes, partitions do not overlap, and their trees exist. An unreadable page is none.
func checkPartitions(tx *txn.Tx, f *Family) (found error) {
	var last *Partition
	bad := func(format string, args ...any) {
		detail := fmt.Sprintf(format, args...)
		found = badfile.At("", -1, "metadata: family %q: %s", f.Name, detail)
	}
	_, err := ListPartitions(tx, f, func(p Partition) bool {
		switch {
		case !f.Partitioned():
			bad("partition %d in a family of keys", p.Start)
		case last != nil && p.Start <= last.Last:
			bad("partition %d begins within the one up to %d", p.Start, last.Last)
		case !tx.Exists(p.Tree):
			bad("partition %d: tree %d is missing", p.Start, p.Tree)
		}
		last = &p
		return found == nil
	})
	if tx.Err() == nil && found == nil {
		return err
	}
	return found
}
