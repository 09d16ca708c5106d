package kv

import "github.com/ebbkv/ebb/ttl"

// A put with an expiry changes three trees. A batch of puts changes the data tree first, and buffers
// the changes of the indexes: then all of them are known, and the log writes their record while they
// are applied. See txn.Tx.SubmitLog.

// maxBufferedIndexRows bounds the buffered changes of a transaction, of some hundred bytes each; it
// may be exceeded by one chunk. The family that reaches it flushes its own.
const maxBufferedIndexRows = 8192

// bufferIndexes makes applyAll buffer index changes of the family, until flushIndexes. Meanwhile no
// other call may read or change the family.
func (v *verbs) bufferIndexes() {
	if v.indexBuffer == nil {
		v.indexBuffer = ttl.NewIndexBuffer()
	}
}

// buffersIndexes says that index changes of the family are buffered. v may be nil.
func (v *verbs) buffersIndexes() bool { return v != nil && v.indexBuffer != nil }

// flushIndexes applies the buffered changes. v may be nil.
func (v *verbs) flushIndexes() error {
	if !v.buffersIndexes() {
		return nil
	}
	n := v.indexBuffer.Len()
	err := v.below(v.rows().FlushIndexes(v.indexBuffer))
	v.tx.bufferedRows -= n - v.indexBuffer.Len()
	return err
}

// flushIndexes applies the buffered changes of families, those that are not nil. Only the commit may
// follow.
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

// releaseBuffers drops changes that are still buffered, after a failed apply, and releases the
// memory.
func releaseBuffers(some ...*verbs) {
	for _, v := range some {
		if v.buffersIndexes() {
			v.tx.bufferedRows -= v.indexBuffer.Len()
			v.indexBuffer.Release()
			v.indexBuffer = nil
		}
	}
}
