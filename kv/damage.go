package kv

import "bytes"

// Damage is what a range could not read: see Tx.OnDamage.
type Damage struct {
	// Family is the name of the family; "" for ListCFs, whose rows are families.
	Family string
	// Lower and Upper bound the keys of rows that are lost: they are in [Lower, Upper), nil being
	// no bound. Ranges by expiry do not know them.
	Lower, Upper []byte
	// Rows is how many rows are stored there. It is an upper bound of what the range has left out:
	// expired rows count, and so do those of a page that reaches beyond the bounds of the range.
	Rows int64
	// Key is set if only a value is lost: the row of this key comes, with a nil value.
	Key []byte
	// Err says what is wrong and where: as a rule a *CorruptError, or the error of a disk that
	// cannot read.
	Err error
}

// OnDamage makes the ranges and cursors of this read transaction, and ListCFs, go on behind pages
// that cannot be read. fn is told of each such page before the row behind it comes, and may keep
// the slices until the transaction ends. If it returns false the range ends there, with the damage
// as its error, as it does without OnDamage. It may use the transaction, and must be set before the
// range begins; nil ends it.
//
// A range that was told of damage gives each row that can be read, and no other: the rows given and
// those in Rows together are what is stored. Calls for one key return damage as an error as before,
// and then the transaction is dead. In a write transaction fn is never called: what is written must
// not rest on half of what is stored.
func (tx *Tx) OnDamage(fn func(Damage) bool) {
	tx.lock()
	defer tx.unlock()
	if !tx.writable {
		tx.onDamage = fn
	}
}

// meetGap notes what has kept the cursor below from its next row, if that is damage behind which it
// may go on. What lies out of bounds is none of ours: the cursor has gone off its end.
func (c *Cursor) meetGap(forward bool) {
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

// readBelow gives the value of the row. One that OnDamage is to be told of is nil.
func (c *Cursor) readBelow() []byte {
	if c.v.tx.onDamage == nil {
		return c.inner.Value()
	}
	value, lost, err := c.inner.ReadValue()
	if lost {
		c.lost = true
		c.damage = &Damage{
			Family: c.v.fam.Name, Lower: c.key, Upper: append(bytes.Clone(c.key), 0), Rows: 1, Key: c.key, Err: fromBelow(err),
		}
	}
	return value
}

// tell tells OnDamage of what the last step has met.
func (c *Cursor) tell() error {
	d := c.damage
	c.damage = nil
	return c.v.tx.tell(d)
}

// tell tells OnDamage, outside of the guard and of the lock: it is a function of the caller's. The
// error is that of the damage if the range shall end.
func (tx *Tx) tell(d *Damage) error {
	if fn := tx.onDamage; fn != nil && fn(*d) {
		return nil
	}
	return d.Err
}
