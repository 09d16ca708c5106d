package txn

import (
	tree "github.com/ebbkv/ebb/btree"
)

// Cursor walks one tree of a transaction in both directions. Key and value are valid until the next
// move. The transaction may put and delete during the walk: the cursor keeps its position by key.
type Cursor struct {
	tx   *Tx
	id   TreeID
	c    tree.Cursor
	mods uint64 // of the writer when c was last positioned
	on   bool   // c is on a row, or was until the transaction deleted that: see find
	key  []byte // of a write transaction: copy of the key
	val  []byte // of a write transaction: copy of the value, if read
	read bool
	err  error

	overGaps bool // see OverGaps
}

// Cursor returns a cursor without a position. A tree that does not exist is an empty one.
func (tx *Tx) Cursor(id TreeID) *Cursor {
	c := new(Cursor)
	c.Init(tx, id)
	return c
}

// Init makes c a cursor of tx without a position, in the caller's memory.
func (c *Cursor) Init(tx *Tx, id TreeID) {
	c.tx, c.id, c.on, c.err, c.read = tx, id, false, nil, false
	c.overGaps = false
	c.c.Bound(nil, nil)
	c.reset()
}

// Bound is tree.Cursor.Bound.
func (c *Cursor) Bound(lo, hi []byte) { c.c.Bound(lo, hi) }

func (c *Cursor) reset() {
	t, _ := c.tx.tree(c.id)
	if w := c.tx.w; w != nil {
		c.mods = w.mods
		c.c.Reset(w, t)
	} else if c.overGaps {
		c.c.Reset(faultReader{c.tx}, t)
	} else {
		c.c.Reset(c.tx, t)
	}
}

// begin says whether a move may start. After a change by the transaction it resets the cursor to
// the tree's new root.
func (c *Cursor) begin() bool {
	if c.err != nil {
		return false
	}
	if c.tx.done || c.tx.err != nil {
		c.on, c.err = false, c.tx.check()
		return false
	}
	if c.stale() {
		c.reset()
	}
	return true
}

// end records the result of a move.
func (c *Cursor) end(ok bool) bool {
	c.on, c.read = ok, false
	if !ok {
		if _, gap := c.Gap(); !gap {
			c.err = c.tx.recordErr(c.c.Err())
		}
		return false
	}
	if c.tx.w != nil {
		c.key = append(c.key[:0], c.c.Key()...)
	}
	return true
}

// First moves to the first row and says whether there is one.
func (c *Cursor) First() bool { return c.begin() && c.end(c.c.First()) }

// Last moves to the last row.
func (c *Cursor) Last() bool { return c.begin() && c.end(c.c.Last()) }

// Seek moves to the first row whose key is at least key.
func (c *Cursor) Seek(key []byte) bool { return c.begin() && c.end(c.c.Seek(key)) }

// SeekBefore moves to the last row whose key is less than key.
func (c *Cursor) SeekBefore(key []byte) bool { return c.begin() && c.end(c.c.SeekBefore(key)) }

// Next moves to the next row; without a row it does nothing.
func (c *Cursor) Next() bool {
	if c.tx.w == nil && c.Valid() {
		return c.c.Next() || c.end(false)
	}
	stale := c.stale()
	if !c.begin() || !c.on {
		return false
	}
	if stale && (!c.c.Seek(c.key) || string(c.c.Key()) != string(c.key)) {
		return c.end(c.c.Valid())
	}
	return c.end(c.c.Next())
}

// Prev moves to the previous row.
func (c *Cursor) Prev() bool {
	if c.tx.w == nil && c.Valid() {
		return c.c.Prev() || c.end(false)
	}
	stale := c.stale()
	if !c.begin() || !c.on {
		return false
	}
	if stale {
		return c.end(c.c.SeekBefore(c.key))
	}
	return c.end(c.c.Prev())
}

// BeginScan begins a scan of the following rows: see tree.Cursor.BeginScan. It returns false in a write
// transaction, whose rows may change during the loop.
func (c *Cursor) BeginScan(forward bool, minTag int64) bool {
	return c.tx.w == nil && c.Valid() && c.c.BeginScan(forward, minTag)
}

// ScanRow is tree.Cursor.ScanRow. The caller knows that the transaction has not ended.
func (c *Cursor) ScanRow() (key, value []byte, ok bool) { return c.c.ScanRow() }

// stale says that the transaction has changed pages since c.c was positioned.
func (c *Cursor) stale() bool { return c.tx.w != nil && c.tx.w.mods != c.mods }

// Valid says whether the cursor is on a row.
func (c *Cursor) Valid() bool { return c.on && !c.tx.done }

// Key of the row, read-only.
func (c *Cursor) Key() []byte {
	if !c.Valid() {
		return nil
	}
	if c.tx.w != nil {
		return c.key
	}
	return c.c.Key()
}

// Value of the row, read-only; never nil if there is a row. If the value cannot be read it is nil,
// and Err is the reason.
func (c *Cursor) Value() []byte {
	if !c.Valid() {
		return nil
	}
	if c.read {
		return c.val
	}
	if !c.find() {
		return nil
	}
	v := c.c.Value()
	if v == nil {
		c.failed()
	}
	if c.tx.w == nil || v == nil {
		return v
	}
	c.val, c.read = append(c.val[:0], v...), true
	if c.val == nil {
		c.val = []byte{}
	}
	return c.val
}

// find positions c.c on the row again after the transaction has changed pages.
func (c *Cursor) find() bool {
	if !c.stale() {
		return true
	}
	if !c.begin() {
		return false
	}
	if !c.c.Seek(c.key) || string(c.c.Key()) != string(c.key) {
		c.failed()
		c.mods-- // the row was deleted: the next move positions c.c again
		return false
	}
	return true
}

func (c *Cursor) failed() {
	if err := c.c.Err(); err != nil {
		c.err, c.on = c.tx.recordErr(err), false
	}
}

// Tag of the row, 0 if it has none.
func (c *Cursor) Tag() int64 {
	if !c.Valid() || !c.find() {
		return 0
	}
	return c.c.Tag()
}

// Err is the error that ended the walk; it stays.
func (c *Cursor) Err() error { return c.err }
