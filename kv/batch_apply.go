package kv

import (
	"context"
	"encoding/binary"
	"sync"

	"github.com/ebbkv/ebb/ttl"
)

// Apply applies all operations of a batch in one transaction with the store's durability.
// Concurrent calls share a sync. ctx bounds the wait for other writers, which inside a callback of
// Update is a deadlock; nil means context.Background. The first invalid argument of the batch is the
// error of Apply, and nothing is applied.
//
// For many scattered rows a batch is faster than the same calls on a Tx: it prefetches the pages of
// several rows at a time, and waits once for all of them. From 128 rows on, in a large family, idle
// processors apply parts of it. With Durability NoSync, rows in ascending order behind all others of
// their family are written once, without a copy in the log: from some twenty kilobytes on, and
// unless MaxBytes is set.
func (db *DB) Apply(ctx context.Context, b *Batch) error {
	if err := db.state(true); err != nil {
		return err
	}
	if b == nil {
		return invalid("the batch is nil")
	}
	ops := b.contents()
	if ops.err != nil {
		return ops.err
	}
	if err := checkKeySize(ops.longestKey, db.maxKey); err != nil {
		return err
	}
	if ctx == nil {
		ctx = context.Background()
	}
	return db.withSpace(ctx, func() error { return db.applyOnce(ctx, ops) })
}

func (db *DB) applyOnce(ctx context.Context, ops *batchOps) error {
	tx, err := db.oneShot.beginWrite(ctx, nil)
	if err != nil {
		return err
	}
	defer db.oneShot.done(tx)
	defer tx.releaseBuffers()
	some, n := changePool.Get().(*changeBuffer), min(ops.n, maxChanges)
	defer some.release(n)
	if err := ops.replay(tx, some[:n]); err != nil {
		return err
	}
	return tx.commit(ctx)
}

// maxChanges is the largest number of rows applied together; each takes about a hundred bytes of
// memory.
const maxChanges = 2048

// changeBuffer holds changes that are applied together.
type changeBuffer [maxChanges]ttl.Change

var changePool = sync.Pool{New: func() any { return new(changeBuffer) }}

// release clears the n changes that were used and returns the memory to the pool. The slices in
// them belong to the caller.
func (c *changeBuffer) release(n int) {
	clear(c[:n])
	changePool.Put(c)
}

// replay applies the operations, up to len(some) at a time. The last ones may be left to the commit,
// in some.
func (b *batchOps) replay(tx *Tx, some []ttl.Change) (err error) {
	families := make([]*verbs, len(b.families))
	for rest := b.buf; len(rest) > 0 && err == nil; {
		v := b.verbs(tx, families, numberOf(rest))
		v.bufferIndexes()
		rest, err = v.replay(rest, some)
	}
	return err
}

// replay applies the operations at the head of buf that are of one family, as many as fit in some.
// It returns the rest of buf.
func (v *familyView) replay(buf []byte, some []ttl.Change) (rest []byte, err error) {
	defer v.tx.leave(v.tx.enter(), &err)
	if err := v.ready(true); err != nil {
		return nil, err
	}
	n, family := 0, numberOf(buf)
	if buf[0] == opDeleteRange {
		lo, hi, rest := splitRow(buf)
		return rest, v.applyRange(lo, hi)
	}
	usual := v.defaultExpiryOnce()
	for len(buf) > 0 && n < len(some) && numberOf(buf) == family && buf[0] != opDeleteRange {
		if buf, err = v.decode(buf, &some[n], &usual); err != nil {
			return nil, err
		}
		n++
	}
	return buf, v.applyRows(some[:n], len(buf) == 0)
}

// applyRange is removeRange after a flush of the buffered index changes.
func (v *familyView) applyRange(lo, hi []byte) error {
	if err := v.flushIndexes(); err != nil {
		return err
	}
	return v.removeRange(lo, hi)
}

// verbs returns the methods of a family of the batch in tx; families caches them.
func (b *batchOps) verbs(tx *Tx, families []*verbs, family int) *verbs {
	if families[family] == nil {
		families[family] = &tx.verbs // the family of most batches
		if name := b.families[family]; name != tx.verbs.name {
			families[family] = &tx.CF(name).txMethods
		}
	}
	return families[family]
}

// numberOf is the family number of the first row of buf.
func numberOf(buf []byte) int { return int(binary.LittleEndian.Uint32(buf[1:])) }

// splitRow splits the first row of buf, a batch's own, into its two slices, and returns the rest of buf.
func splitRow(buf []byte) (first, second, rest []byte) {
	a, b := int(binary.LittleEndian.Uint32(buf[5:])), int(binary.LittleEndian.Uint32(buf[9:]))
	buf = buf[batchHead:]
	return buf[:a:a], buf[a : a+b : a+b], buf[a+b:]
}

// decode decodes the first row of buf, not a range, into c, and returns the rest of buf. Key and
// value were validated when the row was added, and by Apply.
func (v *familyView) decode(buf []byte, c *ttl.Change, usual *defaultExpiry) (rest []byte, err error) {
	kind, when := buf[0], int64(binary.LittleEndian.Uint64(buf[13:]))
	// Field by field: the compiler builds a literal elsewhere and copies it.
	c.Key, c.Value, rest = splitRow(buf)
	c.Tag, c.Delete = 0, kind == opDelete
	switch kind {
	case opDelete:
		c.Value = nil
	case opPut:
		c.Tag, err = usual.at, usual.err
	default:
		c.Tag, err = v.expiry(kind, when)
	}
	return rest, err
}

// defaultExpiry is the result of familyView.defaultExpiry.
type defaultExpiry struct {
	at  int64
	err error
}

func (v *familyView) defaultExpiryOnce() (u defaultExpiry) {
	u.at, u.err = v.defaultExpiry()
	return u
}
