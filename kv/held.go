package kv

import "github.com/ebbkv/ebb/ttl"

// A row with an expiry changes three trees. Where many rows are put together, the rows of all of them come first, and
// what changes in the indexes is held back: then all of it is known, and the log has it written while it is carried
// out. See txn.Tx.LogAhead.

// mostHeld is how many changes are held back in a transaction, some hundred bytes each, and a few more. Whose rows
// reach it settles its own.
const mostHeld = 8192

// hold makes applyAll hold back what changes in the indexes of the family, until settle. Nothing else looks at the
// family or changes it meanwhile.
func (v *verbs) hold() {
	if v.held == nil {
		v.held = ttl.Hold()
	}
}

// holds says that changes of the family are held back, or would be. v may be nil.
func (v *verbs) holds() bool { return v != nil && v.held != nil }

// settle carries out what was held back. v may be nil.
func (v *verbs) settle() error {
	if !v.holds() {
		return nil
	}
	n := v.held.Len()
	err := v.below(v.rows().Settle(v.held))
	v.tx.held -= n - v.held.Len()
	return err
}

// settle carries out what was held back in some families, those that are not nil. Nothing is left to do then but to commit.
func (tx *Tx) settle(some ...*verbs) (err error) {
	trees, changes, bytes := 0, 0, 0
	for _, v := range some {
		if v.holds() {
			trees += 2 // the indexes
			changes += v.held.Len()
			bytes += v.held.Bytes()
		}
	}
	if changes == 0 {
		return nil
	}
	ahead := tx.mayLogAhead(trees, changes, bytes, 0)
	defer tx.leave(tx.enter(), &err)
	if ahead {
		for _, v := range some {
			if v.holds() {
				if err := v.rows().Foretell(v.held); err != nil {
					return fromBelow(err)
				}
			}
		}
		if err := tx.inner.LogAhead(); err != nil {
			return fromBelow(err)
		}
	}
	for _, v := range some {
		if err := v.settle(); err != nil {
			return err
		}
	}
	return nil
}

// release forgets what is still held back, because carrying it out has failed, and gives the memory back.
func release(some ...*verbs) {
	for _, v := range some {
		if v.holds() {
			v.tx.held -= v.held.Len()
			v.held.Release()
			v.held = nil
		}
	}
}
