package kv

import (
	"context"
	"encoding/binary"
	"sync"

	"github.com/ebbkv/ebb/ttl"
)

// Apply applies all operations of a batch in one transaction with the store's durability.
// Concurrent calls share a sync. ctx bounds the wait for the writer lock. The first invalid argument
// of the batch is the error of Apply, and nothing is applied.
//
// For many scattered rows a batch is faster than the same calls on a Tx: it prefetches the pages of
// several rows at a time, and from 128 rows on, in a large family, idle processors apply parts of it.
// With NoSync, some twenty kilobytes of rows in ascending order behind all others of their family are
// written once, without a copy in the log, unless MaxBytes is set.
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
	ctx = background(ctx)
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
	for rest := b.buf; len(rest) > 0 && err == nil; {
		v := tx.family(b.families[numberOf(rest)])
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
		if err := v.flushIndexes(); err != nil {
			return nil, err
		}
		return rest, v.removeRange(lo, hi)
	}
	for len(buf) > 0 && n < len(some) && numberOf(buf) == family && buf[0] != opDeleteRange {
		// The row is valid: it was checked when it was added, and by Apply.
		op := operation{kind: buf[0], when: int64(binary.LittleEndian.Uint64(buf[13:]))}
		op.first, op.second, buf = splitRow(buf)
		if err := v.change(&op, &some[n]); err != nil {
			return nil, err
		}
		n++
	}
	return buf, v.applyRows(some[:n], len(buf) == 0)
}

// numberOf is the family number of the first row of buf.
func numberOf(buf []byte) int { return int(binary.LittleEndian.Uint32(buf[1:])) }

// splitRow splits the first row of buf, a batch's own, into its two slices, and returns the rest of buf.
func splitRow(buf []byte) (first, second, rest []byte) {
	a, b := int(binary.LittleEndian.Uint32(buf[5:])), int(binary.LittleEndian.Uint32(buf[9:]))
	buf = buf[batchHead:]
	return buf[:a:a], buf[a : a+b : a+b], buf[a+b:]
}
