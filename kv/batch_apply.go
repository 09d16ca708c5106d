package kv

import (
	"context"
	"encoding/binary"
	"slices"

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
	err = ops.scout(tx, families)
	if err == nil {
		err = ops.foretell(tx, families)
	}
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

// scout has somebody look ahead for where the keys are, if all are of one family.
func (b *batchOps) scout(tx *Tx, families []*verbs) (err error) {
	family := slices.Index(b.used, true)
	if b.n <= ttl.ApplyRows || slices.Contains(b.used[family+1:], true) {
		return nil
	}
	v := b.verbs(tx, families, family)
	defer tx.leave(tx.enter(), &err)
	if v.ready(true) == nil {
		tx.inner.Scout(v.rows().Family.Data(), b.n, &keysAhead{b.buf})
	}
	return nil
}

// keysAhead are the keys of a batch that is being applied.
type keysAhead struct{ rest []byte }

// Next is that of txn.Keys.
func (k *keysAhead) Next(keys [][]byte) (n int) {
	var op operation
	for n < len(keys) && len(k.rest) > 0 {
		if k.rest = op.decode(k.rest); op.kind != opDeleteRange {
			keys[n] = op.first
			n++
		}
	}
	return n
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
			v := b.verbs(tx, families, family)
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

// verbs are those of a family of the batch in tx: families holds what it has found.
func (b *batchOps) verbs(tx *Tx, families []*verbs, family int) *verbs {
	if families[family] == nil {
		families[family] = &tx.CF(b.families[family]).verbs
	}
	return families[family]
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
