package kv

import "github.com/ebbkv/ebb/ttl"

// A row with an expiry changes three trees. Where many rows are put together, the rows of all of
// them come first, and what changes in the indexes is held back: then all of it is known, and the
// log has it written while it is carried out. See txn.Tx.LogAhead.

// maxBufferedIndexRows is how many changes are held back in a transaction, some hundred bytes each,
// and a few more. Whose rows reach it settles its own.
const maxBufferedIndexRows = 8192

// bufferIndexes makes applyAll hold back what changes in the indexes of the family, until settle.
// Nothing else looks at the family or changes it meanwhile.
func (v *verbs) bufferIndexes() {
	if v.indexBuffer == nil {
		v.indexBuffer = ttl.NewIndexBuffer()
	}
}

// buffersIndexes says that changes of the family are held back, or would be. v may be nil.
func (v *verbs) buffersIndexes() bool { return v != nil && v.indexBuffer != nil }

// flushIndexes carries out what was held back. v may be nil.
func (v *verbs) flushIndexes() error {
	if !v.buffersIndexes() {
		return nil
	}
	n := v.indexBuffer.Len()
	err := v.below(v.rows().FlushIndexes(v.indexBuffer))
	v.tx.held -= n - v.indexBuffer.Len()
	return err
}

// flushIndexes carries out what was held back in some families, those that are not nil. Nothing is
// left to do then but to commit.
func (tx *Tx) flushIndexes(some ...*verbs) (err error) {
	trees, changes, bytes := 0, 0, 0
	for _, v := range some {
		if v.buffersIndexes() {
			trees += 2 // the indexes
			changes += v.indexBuffer.Len()
			bytes += v.indexBuffer.Bytes()
		}
	}
	if changes == 0 {
		return nil
	}
	ahead := tx.canSubmitLog(trees, changes, bytes, 0)
	defer tx.leave(tx.enter(), &err)
	if ahead {
		for _, v := range some {
			if v.buffersIndexes() {
				if err := v.rows().EncodeRedo(v.indexBuffer); err != nil {
					return fromBelow(err)
				}
			}
		}
		if err := tx.inner.SubmitLog(); err != nil {
			return fromBelow(err)
		}
	}
	for _, v := range some {
		if err := v.flushIndexes(); err != nil {
			return err
		}
	}
	return nil
}

// releaseBuffers forgets what is still held back, because carrying it out has failed, and gives the
// memory back.
func releaseBuffers(some ...*verbs) {
	for _, v := range some {
		if v.buffersIndexes() {
			v.tx.held -= v.indexBuffer.Len()
			v.indexBuffer.Release()
			v.indexBuffer = nil
		}
	}
}
