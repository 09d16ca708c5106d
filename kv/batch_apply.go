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
	v             *verbs // on its family
	first, second []byte
	when          int64
}

// replay carries the operations out, some at a time.
func (b *batchOps) replay(tx *Tx) error {
	families := make([]*verbs, len(b.families))
	var some [ttl.WarmKeys]batchOp
	for rest := b.buf; len(rest) > 0; {
		n := 0
		for ; n < len(some) && len(rest) > 0; n++ {
			var family int
			some[n], family, rest = nextOp(rest)
			if families[family] == nil {
				families[family] = &tx.CF(b.families[family]).verbs
			}
			some[n].v = families[family]
		}
		for ops := some[:n]; len(ops) > 0; {
			alike := 1
			for alike < len(ops) && ops[alike].v == ops[0].v {
				alike++
			}
			if err := ops[0].v.applyAll(ops[:alike]); err != nil {
				return err
			}
			ops = ops[alike:]
		}
	}
	return nil
}

// nextOp decodes the first row of buf, which is a batch's own and needs no checks.
func nextOp(buf []byte) (op batchOp, family int, rest []byte) {
	op.kind, rest = buf[0], buf[1:]
	var n [3]int
	for i := range n {
		x, size := binary.Uvarint(rest)
		n[i], rest = int(x), rest[size:]
	}
	when, size := binary.Uvarint(rest)
	rest = rest[size:]
	op.when, op.first, op.second = int64(when), rest[:n[1]], rest[n[1]:n[1]+n[2]]
	return op, n[0], rest[n[1]+n[2]:]
}

// applyAll carries out operations on one family. Whether it may is looked at once for all of them.
func (v *verbs) applyAll(ops []batchOp) (err error) {
	defer v.tx.leave(v.tx.enter(), &err)
	if err := v.ready(true); err != nil {
		return err
	}
	if err := v.warm(ops); err != nil {
		return err
	}
	for i := range ops {
		if err := v.apply(&ops[i]); err != nil {
			return err
		}
	}
	return nil
}

// warm asks for what the operations will need. Whatever is wrong with an argument is for them to tell.
func (v *verbs) warm(ops []batchOp) error {
	if len(ops) == 1 {
		return nil
	}
	var w ttl.Warmer
	for i := range ops {
		switch op := &ops[i]; op.kind {
		case batchDeleteRange:
		case batchDelete:
			w.Add(op.first, 0)
		default:
			expiry, _ := op.expiry()
			w.Add(op.first, expiry)
		}
	}
	return v.below(v.rows().Warm(&w))
}

func (v *verbs) apply(op *batchOp) error {
	if op.kind == batchDeleteRange {
		return v.removeRange(op.first, op.second)
	}
	if err := checkKey(op.first, v.tx.db); err != nil {
		return err
	}
	if op.kind == batchDelete {
		return v.remove(op.first)
	}
	expiry, err := op.expiry()
	if err != nil {
		return err
	}
	return v.put(op.first, op.second, expiry)
}

// expiry is what a put gives its row.
func (op *batchOp) expiry() (int64, error) {
	switch op.kind {
	case batchPutTTL:
		return op.v.after(time.Duration(op.when))
	case batchPutExpireAt:
		return op.v.until(time.UnixMilli(op.when))
	}
	return op.v.usual()
}
