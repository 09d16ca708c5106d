package ttl

import (
	"bytes"
	"errors"

	"github.com/ebbkv/ebb/txn"
)

// Deleting a range. Data and key index lose whole subtrees. The rows of the expiry index lie in the
// order of expiries, so each of them has to be found: by a walk of the key index, as many at a time
// as memory is kept for. Where no other row lies between many of them they go as a range, which
// costs the log one operation.

// DeleteRange removes the keys of [lo, hi); nil does not bound. It costs the same whatever the
// range holds, and one row of each index for each expiry in it, unless all expiries of the family
// are in it.
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
		if err := r.room(size + 2*opOverhead); err != nil {
			return err
		}
		if _, err := r.Tx.DeleteRange(f.Data(), lo, hi); err != nil {
			return err
		}
		return r.clearIndexes()
	}
	if err := r.roomToUnlist(lo, hi, n, size); err != nil {
		return err
	}
	if err := r.loadIndexes(); err != nil {
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
	n = r.Count()
	if hi != nil {
		below, err := r.Tx.Rank(r.Family.KeyIndex(), hi)
		if err != nil {
			return 0, err
		}
		n = int64(below)
	}
	if lo != nil {
		below, err := r.Tx.Rank(r.Family.KeyIndex(), lo)
		if err != nil {
			return 0, err
		}
		n -= int64(below)
	}
	return n, nil
}

// roomToUnlist asks for the room that n expiry rows, those of [lo, hi), take in the log at most,
// and size more bytes. The rows are looked at only where there might be too little.
func (r Rows) roomToUnlist(lo, hi []byte, n int64, size int) error {
	longest := int64(r.Tx.PageSize()/4 + expirySize + opOverhead)
	if n < r.MaxTxnBytes/longest && r.room(size+int(n*longest)) == nil {
		return nil
	}
	err := r.eachIn(lo, hi, func(key []byte, _ int64) error {
		size += len(key) + expirySize + opOverhead
		return nil
	})
	if err != nil {
		return err
	}
	return r.room(size)
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
			return err // A value that could not be read is not damaged for that.
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
	// mostUnlisted is how many expiry rows are kept in memory at a time, some hundred bytes each.
	// The more they are, the more of them lie beside each other.
	mostUnlisted = 16384
	// fewUnlisted rows are deleted one by one: to ask whether others lie between them costs two
	// descents.
	fewUnlisted = 64
	// sparse times as many other rows between them, and halves of them are hardly better.
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
			if len(e.due) == mostUnlisted {
				next = bytes.Clone(key)
				return errFull
			}
			e.addRow(expiry, key, true)
			return nil
		})
		if full = err == errFull; err != nil && !full {
			return err
		}
		if err := r.unlist(e.dueInOrder()); err != nil {
			return err
		}
		lo = next
	}
	return nil
}

// unlist removes rows of the expiry index, which are in order: as a range if no other row lies
// between them, which their ranks tell (I1: all of them are there), else each half by itself.
func (r Rows) unlist(due []Change) error {
	n := len(due)
	if n <= fewUnlisted {
		return r.Tx.Apply(r.Family.ExpiryIndex(), due, nil)
	}
	first, last := due[0].Key, due[n-1].Key
	before, err := r.Tx.Rank(r.Family.ExpiryIndex(), first)
	if err != nil {
		return err
	}
	upTo, err := r.Tx.Rank(r.Family.ExpiryIndex(), last)
	if err != nil {
		return err
	}
	switch span := upTo - before; {
	case span > sparse*uint64(n):
		return r.Tx.Apply(r.Family.ExpiryIndex(), due, nil)
	case span == uint64(n-1):
		_, err := r.Tx.DeleteRange(r.Family.ExpiryIndex(), first, append(bytes.Clone(last), 0))
		return err
	}
	if err := r.unlist(due[:n/2]); err != nil {
		return err
	}
	return r.unlist(due[n/2:])
}
