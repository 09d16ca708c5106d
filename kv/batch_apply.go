package kv

import (
	"context"
	"encoding/binary"
	"time"

	"github.com/ebbkv/ebb/ttl"
)

// Apply carries out all operations of a batch in one transaction with the store's durability. Several at once share a
// sync. ctx bounds the wait for other writers; nil means context.Background. An argument that a verb of the batch could
// not take is the error of Apply, and nothing is applied.
//
// Of many rows that lie anywhere a batch writes more in a second than the same calls on a Tx: it asks for the pages of several
// rows at a time, and waits once for all of them.
func (db *DB) Apply(ctx context.Context, b *Batch) error {
	if err := db.state(true); err != nil {
		return err
	}
	if b == nil {
		return invalid("the batch is nil")
	}
	ops := b.held()
	if ops.err != nil {
		return ops.err
	}
	tx, err := db.shots.use(ctx, nil)
	if err != nil {
		return err
	}
	defer db.shots.done(tx)
	if err := ops.replay(tx); err != nil {
		return err
	}
	return tx.commit(ctx)
}

// batchOp is one operation, in the memory of its batch.
type batchOp struct {
	kind          byte
	family        int
	first, second []byte
	when          int64
}

// replay carries the operations out, some at a time.
func (b *batchOps) replay(tx *Tx) error {
	families := make([]*verbs, len(b.families))
	var some [ttl.ApplyRows]batchOp
	for rest := b.buf; len(rest) > 0; {
		n := 0
		for ; n < len(some) && len(rest) > 0; n++ {
			rest = some[n].decode(rest)
		}
		for ops := some[:n]; len(ops) > 0; {
			family, alike := ops[0].family, 1
			for alike < len(ops) && ops[alike].family == family {
				alike++
			}
			if families[family] == nil {
				families[family] = &tx.CF(b.families[family]).verbs
			}
			if err := families[family].applyAll(ops[:alike]); err != nil {
				return err
			}
			ops = ops[alike:]
		}
	}
	return nil
}

// decode reads the first row of buf, which is a batch's own and needs no checks, and returns what follows it.
func (op *batchOp) decode(buf []byte) (rest []byte) {
	op.kind, op.family = buf[0], int(binary.LittleEndian.Uint32(buf[1:]))
	a, b := int(binary.LittleEndian.Uint32(buf[5:])), int(binary.LittleEndian.Uint32(buf[9:]))
	op.when = int64(binary.LittleEndian.Uint64(buf[13:]))
	buf = buf[batchHead:]
	op.first, op.second = buf[:a:a], buf[a:a+b:a+b]
	return buf[a+b:]
}

// applyAll carries out operations on one family. Whether it may is looked at once for all of them.
func (v *verbs) applyAll(ops []batchOp) (err error) {
	defer v.tx.leave(v.tx.enter(), &err)
	if err := v.ready(true); err != nil {
		return err
	}
	var changes [ttl.ApplyRows]ttl.Change
	n := 0
	for i := range ops {
		op := &ops[i]
		if op.kind == batchDeleteRange {
			if err := v.applyRows(changes[:n]); err != nil {
				return err
			}
			if err := v.removeRange(op.first, op.second); err != nil {
				return err
			}
			n = 0
			continue
		}
		if err := v.change(op, &changes[n]); err != nil {
			return err
		}
		n++
	}
	return v.applyRows(changes[:n])
}

func (v *verbs) applyRows(changes []ttl.Change) error {
	if len(changes) == 0 {
		return nil
	}
	return v.below(v.rows().Apply(changes))
}

// change makes c what the operation does to a row.
func (v *verbs) change(op *batchOp, c *ttl.Change) error {
	if err := checkKey(op.first, v.tx.db); err != nil {
		return err
	}
	// Field by field: a literal would be made elsewhere and copied.
	c.Key, c.Value, c.Tag, c.Delete = op.first, nil, 0, op.kind == batchDelete
	if c.Delete {
		return nil
	}
	expiry, err := v.expiry(op)
	if err != nil {
		return err
	}
	c.Value, c.Tag = op.second, expiry
	return nil
}

// expiry is what a put gives its row.
func (v *verbs) expiry(op *batchOp) (int64, error) {
	switch op.kind {
	case batchPutTTL:
		return v.after(time.Duration(op.when))
	case batchPutExpireAt:
		return v.until(time.UnixMilli(op.when))
	}
	return v.usual()
}
