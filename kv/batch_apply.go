package kv

import (
	"context"
	"encoding/binary"

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
	families := make([]*verbs, len(ops.families))
	defer release(families...)
	err = ops.foretell(tx, families)
	if err == nil {
		err = ops.replay(tx, families)
	}
	if err == nil {
		err = tx.settle(families...)
	}
	if err == nil {
		err = tx.commit(ctx)
	}
	return tx.undone(err)
}

// replay carries the operations out, some at a time.
func (b *batchOps) replay(tx *Tx, families []*verbs) error {
	var some [ttl.ApplyRows]operation
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
			v := families[family]
			if !tx.inner.LoggedAhead() {
				v.hold()
			}
			if err := v.applyAll(ops[:alike]); err != nil {
				return err
			}
			ops = ops[alike:]
		}
	}
	return nil
}

// decode reads the first row of buf, which is a batch's own and needs no checks, and returns what follows it.
func (op *operation) decode(buf []byte) (rest []byte) {
	op.kind, op.family = buf[0], int(binary.LittleEndian.Uint32(buf[1:]))
	a, b := int(binary.LittleEndian.Uint32(buf[5:])), int(binary.LittleEndian.Uint32(buf[9:]))
	op.when = int64(binary.LittleEndian.Uint64(buf[13:]))
	buf = buf[batchHead:]
	op.first, op.second = buf[:a:a], buf[a:a+b:a+b]
	return buf[a+b:]
}
