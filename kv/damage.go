package kv

import (
	"bytes"

	"github.com/ebbkv/ebb/txn"
)

// Damage is a part of a range that could not be read: see Tx.OnDamage.
type Damage struct {
	Family       string // its name; "" for ListCFs, whose rows are families
	Lower, Upper []byte // keys of lost rows are in [Lower, Upper), nil: no bound, or a range by expiry
	// Rows is the number of rows stored there, an upper bound of the rows that the range skipped:
	// expired rows count, and so do those of a page that reaches beyond the bounds of the range.
	Rows int64
	Key  []byte // set if only its value is lost: the range yields it with a nil value
	Err  error  // the cause and its place: as a rule a *CorruptError, or an I/O error
}

// OnDamage makes the ranges and cursors of this read transaction that begin later, and ListCFs,
// continue behind unreadable pages; nil ends that. fn is called for each such page before the row
// behind it, and may use the transaction. If it returns false the range ends with the damage as its
// error. Every readable row comes, and no other: these and the Rows of the damages are all stored
// rows. Calls for one key still return damage as an error, and then the transaction is dead. A write
// transaction never calls fn: writes must not depend on half of the stored rows.
func (tx *Tx) OnDamage(fn func(Damage) bool) {
	tx.lock()
	defer tx.unlock()
	if !tx.writable {
		tx.own().onDamage = fn
	}
}

func damageOf(g txn.Gap) *Damage {
	return &Damage{Lower: g.Lower, Upper: g.Upper, Rows: int64(g.Rows), Err: fromBelow(g.Err)}
}

// recordGap records damage that kept the inner cursor from its next row, if the cursor may continue
// behind it. For damage out of bounds, the cursor has walked off its end.
func (c *Cursor) recordGap(forward bool) {
	g, ok := c.inner.Gap()
	if !ok {
		return
	}
	d := damageOf(g)
	d.Family = c.v.fam.Name
	if c.hi != nil && bytes.Compare(d.Lower, c.hi) >= 0 || d.Upper != nil &&
		bytes.Compare(d.Upper, c.lo) <= 0 {
		return
	}
	if bytes.Compare(d.Lower, c.lo) < 0 {
		d.Lower = c.lo
	}
	if c.hi != nil && (d.Upper == nil || bytes.Compare(d.Upper, c.hi) > 0) {
		d.Upper = c.hi
	}
	c.damage, c.forward = d, forward
}

// readBelow reads the value of the row. A lost one is nil, and recorded for OnDamage.
func (c *Cursor) readBelow() []byte {
	if c.v.tx.onDamage == nil {
		return c.inner.Value()
	}
	value, lost, err := c.inner.ReadValue()
	if lost {
		c.lost = true
		c.damage = &Damage{
			Family: c.v.fam.Name, Lower: c.key, Upper: append(bytes.Clone(c.key), 0),
			Rows: 1, Key: c.key, Err: fromBelow(err),
		}
	}
	return value
}

// reportDamage passes damage of the last step to OnDamage.
func (c *Cursor) reportDamage() error {
	d := c.damage
	c.damage = nil
	return c.v.tx.reportDamage(d)
}

// reportDamage calls OnDamage, a callback, outside of the guard and of the lock. It returns the error of the
// damage if the range is to end.
func (tx *Tx) reportDamage(d *Damage) error {
	if fn := tx.onDamage; fn != nil && fn(*d) {
		return nil
	}
	return d.Err
}
