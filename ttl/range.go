package ttl

import (
	"bytes"
	"errors"
	"math"

	"github.com/ebbkv/ebb/txn"
)

// Deleting a range. Data and key index lose whole subtrees. The expiry index is sorted by expiry, so
// each of its rows has to be found: by a walk of the key index, in chunks of bounded memory. Where no
// other row is between many of them they are deleted as a range, one operation in the log.

// DeleteRange removes the keys of [lo, hi); nil is no bound. Its cost is constant, plus one row of
// each index for each expiry in the range, unless the range has all expiries of the family.
func (r Rows) DeleteRange(lo, hi []byte) error {
	f := r.Family
	n, err := r.countIn(lo, hi)
	if err != nil {
		return err
	}
	if n == 0 {
		_, err := r.Tx.DeleteRange(f.Data(), lo, hi)
		return err
	}
	size := 2 * (len(lo) + len(hi) + opOverhead)
	if n == r.Count() {
		if err := r.Tx.EnsureTxnBytes(size + 2*opOverhead); err != nil {
			return err
		}
		if _, err := r.Tx.DeleteRange(f.Data(), lo, hi); err != nil {
			return err
		}
		return r.clearIndexes()
	}
	if err := r.ensureExpiryRowsFit(lo, hi, n, size); err != nil {
		return err
	}
	if err := r.requireIndexes(); err != nil {
		return err
	}
	if err := r.removeIndexRows(lo, hi); err != nil {
		return err
	}
	for _, id := range [...]txn.TreeID{f.KeyIndex(), f.Data()} {
		if _, err := r.Tx.DeleteRange(id, lo, hi); err != nil {
			return err
		}
	}
	return nil
}

// countIn counts the keys of [lo, hi) that have an expiry. It costs two descents.
func (r Rows) countIn(lo, hi []byte) (n int64, err error) {
	if !r.HasExpiries() { // I5
		return 0, nil
	}
	rows, err := r.Tx.RowsIn(r.Family.KeyIndex(), lo, hi)
	return int64(rows), err
}

// ensureExpiryRowsFit verifies that the log bytes of n expiry rows, those of [lo, hi), and size more fit
// into the transaction. It reads the rows only near the bound.
func (r Rows) ensureExpiryRowsFit(lo, hi []byte, n int64, size int) error {
	longest := int64(r.Tx.PageSize()/4 + expirySize + opOverhead)
	if most := n * longest; most < math.MaxInt/2 && r.Tx.EnsureTxnBytes(size+int(most)) == nil {
		return nil
	}
	err := r.eachIn(lo, hi, func(key []byte, _ int64) error {
		size += len(key) + expirySize + opOverhead
		return nil
	})
	if err != nil {
		return err
	}
	return r.Tx.EnsureTxnBytes(size)
}

// eachIn visits the keys of [lo, hi) that have an expiry. fn must not write.
func (r Rows) eachIn(lo, hi []byte, fn func(key []byte, expiry int64) error) error {
	c := r.Tx.Cursor(r.Family.KeyIndex())
	ok := false
	if lo == nil {
		ok = c.First()
	} else {
		ok = c.Seek(lo)
	}
	for ; ok && (hi == nil || bytes.Compare(c.Key(), hi) < 0); ok = c.Next() {
		expiry, err := decodeExpiry(c.Value())
		if err := c.Err(); err != nil {
			return err // An unreadable value is not a damaged one.
		}
		if err != nil {
			return r.treeErr("key index", err)
		}
		if err := fn(c.Key(), expiry); err != nil {
			return err
		}
	}
	return c.Err()
}

const (
	// expiryRowsPerChunk bounds the expiry rows in memory at a time, some hundred bytes each. In larger
	// chunks more of them are adjacent.
	expiryRowsPerChunk = 16384
	// fewExpiryRows rows are deleted one by one: the test for other rows between them costs two
	// descents.
	fewExpiryRows = 64
	// With sparse times as many other rows between them, halves of a chunk are hardly better.
	sparse = 2
)

// removeIndexRows removes the expiry rows of the keys in [lo, hi).
func (r Rows) removeIndexRows(lo, hi []byte) error {
	e := NewIndexBuffer()
	defer e.Release()
	errFull := errors.New("full")
	for full := true; full; {
		var next []byte
		e.Reset()
		err := r.eachIn(lo, hi, func(key []byte, expiry int64) error {
			if len(e.due) == expiryRowsPerChunk {
				next = bytes.Clone(key)
				return errFull
			}
			e.addRow(expiry, key, true)
			return nil
		})
		if full = err == errFull; err != nil && !full {
			return err
		}
		if err := r.deleteExpiryRows(e.dueInOrder()); err != nil {
			return err
		}
		lo = next
	}
	return nil
}

// deleteExpiryRows removes rows of the expiry index, which are sorted: as a range if no other row is between
// them by their ranks (I1: all of them exist), else each half by itself.
func (r Rows) deleteExpiryRows(due []Change) error {
	n := len(due)
	if n <= fewExpiryRows {
		return r.Tx.Apply(r.Family.ExpiryIndex(), due, nil)
	}
	first, last := due[0].Key, due[n-1].Key
	span, err := r.Tx.RowsIn(r.Family.ExpiryIndex(), first, last)
	if err != nil {
		return err
	}
	switch {
	case span > sparse*uint64(n):
		return r.Tx.Apply(r.Family.ExpiryIndex(), due, nil)
	case span == uint64(n-1):
		_, err := r.Tx.DeleteRange(r.Family.ExpiryIndex(), first, append(bytes.Clone(last), 0))
		return err
	}
	if err := r.deleteExpiryRows(due[:n/2]); err != nil {
		return err
	}
	return r.deleteExpiryRows(due[n/2:])
}
