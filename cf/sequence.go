package cf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/txn"
)

// ErrSequenceEnd is returned by NextSequence once the sequence has reached the largest uint64.
var ErrSequenceEnd = errors.New("cf: the sequence of the family has ended")

// The metadata tree of a family holds what belongs to the family itself and survives the deletion of
// its rows. It is created with its first row. A name is the key of each row; integers are
// little-endian.
//
//	key             value
//	sequence-last   u64, at least 1: the number that NextSequence returned last
//	partition-...   a partition of a time-partitioned family: see Partition
//
// A number is a row of the transaction that takes it, so a crash loses or keeps both together. Golden
// bytes: testdata/metadata.hex.
const (
	sequenceKey  = "sequence-last"
	sequenceSize = 8
)

// sequenceBytes bounds the redo of NextSequence: a refused call leaves no tree without a row.
const sequenceBytes = 96

// Metadata is the tree of the family's own rows; it need not exist.
func (f *Family) Metadata() txn.TreeID { return f.Base + 3 }

// Sequence returns the number that NextSequence returned last in the snapshot of tx; 0: none yet.
func Sequence(tx *txn.Tx, f *Family) (last uint64, err error) {
	if f.NoTrees() {
		return 0, nil
	}
	value, _, found, err := tx.Get(f.Metadata(), []byte(sequenceKey))
	if err != nil {
		return 0, fmt.Errorf("read metadata: %w", err)
	}
	if !found {
		return 0, nil
	}
	return decodeSequence(f.Name, value)
}

// NextSequence returns 1 for the first call, and 1 more for each later one. A rollback takes the
// number back.
func NextSequence(tx *txn.Tx, f *Family) (next uint64, err error) {
	last, err := Sequence(tx, f)
	if err != nil {
		return 0, err
	}
	if last == math.MaxUint64 {
		return 0, fmt.Errorf("%w: %q", ErrSequenceEnd, f.Name)
	}
	return last + 1, SetSequence(tx, f, last+1)
}

// SetSequence makes last the number that NextSequence returned last; 0: none yet.
func SetSequence(tx *txn.Tx, f *Family, last uint64) error {
	if err := tx.EnsureTxnBytes(sequenceBytes); err != nil {
		return err
	}
	if last == 0 {
		if !tx.Exists(f.Metadata()) {
			return nil
		}
		_, err := tx.Delete(f.Metadata(), []byte(sequenceKey))
		return err
	}
	if err := ensureMetadata(tx, f); err != nil {
		return err
	}
	_, err := tx.Put(f.Metadata(), []byte(sequenceKey), appendSequence(nil, last), 0)
	return err
}

// ensureMetadata creates the metadata tree if it is absent.
func ensureMetadata(tx *txn.Tx, f *Family) error {
	if tx.Exists(f.Metadata()) {
		return nil
	}
	return tx.Create(f.Metadata())
}

func appendSequence(b []byte, last uint64) []byte { return binary.LittleEndian.AppendUint64(b, last) }

// decodeSequence verifies the layout above. Its errors are *badfile.Error.
func decodeSequence(family string, b []byte) (last uint64, err error) {
	if len(b) != sequenceSize {
		return 0, badfile.At("", -1, "metadata: family %q: %s of %d bytes, expected %d",
			family, sequenceKey, len(b), sequenceSize)
	}
	if last = binary.LittleEndian.Uint64(b); last == 0 {
		return 0, badfile.At("", -1, "metadata: family %q: %s is 0", family, sequenceKey)
	}
	return last, nil
}

// checkMetadata verifies every row of a family's metadata tree, and returns the first finding. An
// unreadable page is none.
func checkMetadata(tx *txn.Tx, f *Family) (found error) {
	c := tx.Cursor(f.Metadata())
	for ok := c.First(); ok && found == nil; ok = c.Next() {
		key := string(c.Key())
		if strings.HasPrefix(key, partitionPrefix) {
			continue // see checkPartitions
		}
		if key != sequenceKey {
			return badfile.At("", -1, "metadata: family %q: unknown row %q", f.Name, key)
		}
		if value := c.Value(); c.Err() == nil {
			_, found = decodeSequence(f.Name, value)
		}
	}
	return found
}
