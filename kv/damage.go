package kv

import "bytes"

// Damage is a part of a range that could not be read: see Tx.OnDamage.
type Damage struct {
	// Family is the name of the family; "" for ListCFs, whose rows are families.
	Family string
	// Lower and Upper bound the keys of lost rows: they are in [Lower, Upper), nil being no bound.
	// Ranges by expiry do not know them.
	Lower, Upper []byte
	// Rows is the number of rows stored there, an upper bound of the rows that the range skipped:
	// expired rows count, and so do those of a page that reaches beyond the bounds of the range.
	Rows int64
	// Key is set if only a value is lost: the range yields this key with a nil value.
	Key []byte
	// Err is the cause and its place: as a rule a *CorruptError, or an I/O error.
	Err error
}

// OnDamage makes the ranges and cursors of this read transaction, and ListCFs, continue behind
// unreadable pages. fn is called for each such page before the row behind it, and may keep the
// slices until the transaction ends. If it returns false the range ends with the damage as its
// error, as it does without OnDamage. fn may use the transaction. Set it before the range begins;
// nil removes it.
//
// A range with OnDamage yields every readable row, and no other: these and the Rows of the damages
// together are the stored rows. Calls for one key still return damage as an error, and then the
// transaction is dead. A write transaction never calls fn: writes must not depend on half of the
// stored rows.
func (tx *Tx) OnDamage(fn func(Damage) bool) {
	tx.lock()
	defer tx.unlock()
	if !tx.writable {
		tx.onDamage = fn
	}
}

// recordGap records damage that kept the inner cursor from its next row, if the cursor may continue
// behind it. For damage out of bounds, the cursor has walked off its end.
func (c *Cursor) recordGap(forward bool) {
	g, ok := c.inner.Gap()
	if !ok {
		return
	}
	d := &Damage{
		Family: c.v.fam.Name,
		Lower:  g.Lower,
		Upper:  g.Upper,
		Rows:   int64(g.Rows),
		Err:    fromBelow(g.Err),
	}
	if c.hi != nil && bytes.Compare(d.Lower, c.hi) >= 0 || d.Upper != nil && bytes.Compare(d.Upper, c.lo) <= 0 {
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
