package kv

import (
	"bytes"
	"time"

	"github.com/ebbkv/ebb/txn"
)

// Cursor walks the rows of a family within bounds, in both directions. It belongs to its
// transaction, which may change the family meanwhile: the cursor's position is a key. Key and value
// slices are read-only and valid until the next move, and at most until the transaction ends.
//
// Each move says whether it has found a row. A new cursor has no position: Next moves to the first
// row, Prev to the last. A cursor that has walked off an end stays there, and the opposite move
// returns to the row at that end. An error ends the cursor for good, and is the transaction's error.
//
// The end of its transaction ends a cursor: it is on no row, Key and Value are nil, moves return
// false, and Err is ErrTxnDone, or ErrClosed if Shutdown ended the transaction. If the cursor had
// walked off an end before, Err stays nil.
type Cursor struct {
	v     *verbs
	inner txn.Cursor
	// the tree of a partition, for rows by time; 0: the family's data tree
	partition txn.TreeID
	placed    bool   // inner is in use: from the first move on, if the family has a tree
	lo, hi    []byte // bounds, nil: none
	bounds    []byte // memory of lo and hi
	keysOnly  bool
	eager     bool // each move reads the value

	timed bool // rows may have an expiry; a read transaction sets it at the first move

	pos    cursorPos
	expiry int64  // at onRow: of the row, or 0
	key    []byte // at onRow: of the row
	value  []byte // at onRow: the result of Value, or nil
	err    error

	damage  *Damage // found by the last step, for OnDamage
	lost    bool    // at onRow: the value is unreadable, and OnDamage was called
	forward bool    // direction of the step that found damage
}

type cursorPos uint8

const (
	nowhere cursorPos = iota
	before            // the first row
	onRow
	onGap // the place of a row that the cursor deleted
	after // the last row
)

// step is one kind of move.
type step uint8

const (
	toFirst step = iota
	toLast
	toNext
	toPrev
	toSeek
	toSeekBefore
	toResume // behind damage, in the direction of the last step
)

// Cursor returns a cursor over the whole family.
func (v *verbs) Cursor() *Cursor { return &Cursor{v: v} }

// CursorIn returns a cursor that stays within the bounds of o. Reverse and Limit are for Scan: with
// one of them the cursor's error is ErrInvalidOptions.
func (v *verbs) CursorIn(o ScanOptions) *Cursor {
	c := &Cursor{v: v, keysOnly: o.KeysOnly}
	if o.Reverse || o.Limit != 0 {
		c.err = invalid("ScanOptions: Reverse and Limit are not for cursors")
		v.tx.fail(c.err)
		return c
	}
	c.bound(&o)
	return c
}

func (c *Cursor) First() bool { return c.move(toFirst, nil) }

func (c *Cursor) Last() bool { return c.move(toLast, nil) }

func (c *Cursor) Next() bool { return c.move(toNext, nil) }

func (c *Cursor) Prev() bool { return c.move(toPrev, nil) }

// Seek moves to the first row at or above key. An empty key is First.
func (c *Cursor) Seek(key []byte) bool { return c.move(toSeek, key) }

// SeekBefore moves to the last row below key. An empty key is Last.
func (c *Cursor) SeekBefore(key []byte) bool { return c.move(toSeekBefore, key) }

// Valid says whether the cursor is on a row, in a transaction that has not ended.
func (c *Cursor) Valid() bool { return c.pos == onRow && c.err == nil && !c.v.tx.hasEnded() }

// Key returns the key of the row, nil if there is none.
func (c *Cursor) Key() []byte {
	if !c.Valid() {
		return nil
	}
	return c.key
}

// Value returns the value of the row; nil if there is none, and with KeysOnly.
func (c *Cursor) Value() []byte {
	if !c.Valid() || c.keysOnly {
		return nil
	}
	if c.value == nil && !c.lost {
		c.value = c.read()
	}
	return c.value
}

// Expiry returns the expiry of the row; ok is false if the row is permanent, or there is none.
func (c *Cursor) Expiry() (at time.Time, ok bool) {
	if !c.Valid() || c.expiry == 0 {
		return time.Time{}, false
	}
	return time.UnixMilli(c.expiry), true
}

// Err returns the error that ended the cursor, or nil if it walked off an end. If the transaction
// ended first, Err is the error of that.
func (c *Cursor) Err() error {
	if c.err != nil || c.pos == before || c.pos == after || !c.v.tx.hasEnded() {
		return c.err
	}
	return c.v.tx.check(false)
}

// read reads the value of the row. A failure ends the cursor.
func (c *Cursor) read() (value []byte) {
	err := c.call(func() error {
		value = c.readBelow()
		return fromBelow(c.inner.Err())
	})
	if err == nil && c.damage != nil {
		err = c.reportDamage()
	}
	if err != nil {
		c.end(err)
		return nil
	}
	return value
}

// call runs fn within the transaction, if that is open.
func (c *Cursor) call(fn func() error) (err error) {
	tx := c.v.tx
	defer tx.leave(tx.enter(), &err)
	if err := c.ready(); err != nil {
		return err
	}
	return fn()
}

// ready is verbs.ready for a move.
func (c *Cursor) ready() error {
	if c.partition != 0 {
		return c.v.readyTimed(false)
	}
	return c.v.ready(false)
}

func (c *Cursor) end(err error) {
	c.err, c.key, c.value = err, nil, nil
	c.v.tx.fail(err)
}

// Delete removes the row under the cursor; Next and Prev continue from its place. Without a row it
// does nothing. An error of the call itself, such as ErrReadOnlyTxn, does not end the cursor.
func (c *Cursor) Delete() (err error) {
	tx := c.v.tx
	defer tx.leave(tx.enter(), &err)
	if err := c.v.ready(true); err != nil {
		return err
	}
	if c.err != nil || c.pos != onRow {
		return c.err
	}
	if err := c.v.remove(c.key); err != nil {
		return err
	}
	c.pos, c.key, c.value = onGap, nil, nil
	return nil
}

// move makes one step and says whether the cursor is on a row.
func (c *Cursor) move(s step, key []byte) bool {
	c.value = nil
	if c.err == nil {
		err := c.step(s, key)
		for err == nil && c.damage != nil {
			if err = c.reportDamage(); err == nil {
				err = c.step(toResume, nil)
			}
		}
		if err != nil {
			c.end(err)
		}
	}
	return c.Valid()
}

func (c *Cursor) step(s step, key []byte) (err error) {
	tx := c.v.tx
	defer tx.leave(tx.enter(), &err)
	return c.advance(s, key)
}

// advance is step for a caller that has entered the transaction.
func (c *Cursor) advance(s step, key []byte) error {
	if err := c.ready(); err != nil {
		return err
	}
	c.lost = false
	if !c.placed {
		if c.v.fam.NoTrees() {
			c.pos = after
			return nil
		}
		id := c.partition
		if id == 0 {
			id = c.v.fam.Data()
		}
		c.inner.Init(c.v.tx.inner, id)
		if c.v.tx.onDamage != nil {
			c.inner.OverGaps()
		}
		c.inner.Bound(c.lo, c.hi)
		c.placed = true
		c.timed = c.partition == 0 && (c.v.tx.writable || c.v.rows().HasExpiries())
	}
	ok, forward := c.walk(s, key)
	if ok {
		ok = c.confirm(forward)
	} else {
		c.walkOff(forward)
	}
	if c.timed && ok {
		var err error
		if ok, err = c.skipExpired(forward); err != nil {
			return c.v.below(err)
		}
	}
	if ok && c.eager {
		c.value = c.readBelow()
	}
	if !ok {
		c.recordGap(forward)
	}
	if !ok || c.eager && c.value == nil {
		return fromBelow(c.inner.Err())
	}
	return nil
}

// skipExpired moves on in the direction of the cursor while it is on an expired row. It needs no
// memory for them.
func (c *Cursor) skipExpired(forward bool) (ok bool, err error) {
	for {
		c.expiry = 0
		expiry := c.inner.Tag()
		switch {
		case expiry == 0:
			return true, c.inner.Err()
		case expiry < 0:
			return false, c.v.rows().BadTag(expiry)
		case !c.v.tx.db.clock.hides(c.v.tx.instant(), expiry):
			c.expiry = expiry
			return true, nil
		}
		c.v.noteExpired(c.key, expiry)
		if forward {
			ok = c.inner.Next()
		} else {
			ok = c.inner.Prev()
		}
		if !ok {
			c.walkOff(forward)
			return false, nil
		}
		if !c.confirm(forward) {
			return false, nil
		}
	}
}

// walk moves the inner cursor. The row that it finds may be out of bounds, on the side that it moved
// to.
func (c *Cursor) walk(s step, key []byte) (ok, forward bool) {
	if s == toResume {
		return c.inner.Skip(c.forward), c.forward
	}
	switch s { // Steps from no row are steps from an end.
	case toNext:
		switch c.pos {
		case after:
			return false, true
		case nowhere, before:
			s = toFirst
		}
	case toPrev:
		switch c.pos {
		case before:
			return false, false
		case nowhere, after:
			s = toLast
		}
	case toSeek:
		if bytes.Compare(key, c.lo) <= 0 {
			s = toFirst
		}
	case toSeekBefore:
		if len(key) == 0 || (c.hi != nil && bytes.Compare(key, c.hi) >= 0) {
			s = toLast
		}
	}
	switch s {
	case toFirst:
		if c.lo != nil {
			return c.inner.Seek(c.lo), true
		}
		return c.inner.First(), true
	case toLast:
		if c.hi != nil {
			return c.inner.SeekBefore(c.hi), false
		}
		return c.inner.Last(), false
	case toNext:
		return c.inner.Next(), true
	case toPrev:
		return c.inner.Prev(), false
	case toSeek:
		return c.inner.Seek(key), true
	default:
		return c.inner.SeekBefore(key), false
	}
}

// confirm makes the row of the inner cursor the cursor's if it is within bounds.
func (c *Cursor) confirm(forward bool) bool {
	key := c.inner.Key()
	if (forward && c.hi != nil && bytes.Compare(key, c.hi) >= 0) ||
		(!forward && c.lo != nil && bytes.Compare(key, c.lo) < 0) {
		c.walkOff(forward)
		return false
	}
	c.pos, c.key = onRow, key
	return true
}

// walkOff sets the position behind the end that the cursor moved to.
func (c *Cursor) walkOff(forward bool) {
	c.key, c.pos = nil, before
	if forward {
		c.pos = after
	}
}
