package kv

import (
	"time"

	"github.com/ebbkv/ebb/ttl"
)

// operation is a one-shot write of a row, which may be applied together with others. Its maker owns
// the slices.
type operation struct {
	kind          byte
	first, second []byte // key and value
	when          int64  // a ttl in nanoseconds, or an expiry in milliseconds, or 0
}

// Kinds of operations, also of batches.
const (
	opPut byte = iota
	opDelete
	opDeleteRange
	opPutTTL
	opPutExpireAt
)

// apply runs the operation alone. One-shot writes are operations of three kinds.
func (op *operation) apply(v *verbs) error {
	if op.kind == opDelete {
		return v.Delete(op.first)
	}
	return v.putRow(op.first, op.second, op.kind, op.when)
}

// applyAll applies operations on rows of one family, the last ones of a transaction and maxChanges at
// most. changes is memory for them, where they may be left for the commit.
func (v *familyView) applyAll(ops []*writeRequest, changes []ttl.Change) (err error) {
	defer v.tx.leave(v.tx.enter(), &err)
	if err := v.ready(true); err != nil {
		return err
	}
	for i, one := range ops {
		if err := v.change(&one.row, &changes[i]); err != nil {
			return err
		}
	}
	return v.applyRows(changes[:len(ops)], true)
}

func (v *familyView) applyRows(changes []ttl.Change, last bool) error {
	if v.tx.db.onExpireTx != nil {
		for i := range changes {
			if err := v.expireOld(changes[i].Key); err != nil {
				return err
			}
		}
	}
	switch {
	case len(changes) == 0:
		return nil
	case v.indexBuffer == nil:
		return v.below(v.rows().Apply(changes))
	}
	before := v.indexBuffer.Len()
	err := v.below(v.rows().ApplyBuffered(changes, v.indexBuffer, last))
	v.tx.bufferedRows += v.indexBuffer.Len() - before
	if err == nil && v.tx.bufferedRows >= maxBufferedIndexRows {
		err = v.flushIndexes()
	}
	return err
}

// change encodes the operation as a change of a row, in c.
func (v *familyView) change(op *operation, c *ttl.Change) error {
	if err := checkKey(op.first, v.tx.db.maxKey); err != nil {
		return err
	}
	// Field by field: the compiler builds a literal elsewhere and copies it.
	c.Key, c.Value, c.Tag, c.Delete = op.first, nil, 0, op.kind == opDelete
	if c.Delete {
		return nil
	}
	if err := checkValue(op.second); err != nil {
		return err
	}
	expiry, err := v.expiry(op.kind, op.when)
	if err != nil {
		return err
	}
	c.Value, c.Tag = op.second, expiry
	return nil
}

func (v *familyView) expiry(kind byte, when int64) (int64, error) {
	switch kind {
	case opPutTTL:
		return v.after(time.Duration(when))
	case opPutExpireAt:
		return v.until(time.UnixMilli(when))
	}
	return v.defaultExpiry()
}
