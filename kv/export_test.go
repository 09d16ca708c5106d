package kv

import (
	"context"
	"math"

	"github.com/ebbkv/ebb/cf"
	"github.com/ebbkv/ebb/txn"
)

// RawRow is a row of one of a family's trees.
type RawRow struct {
	Key, Value string
	Tag        int64
}

// RawTrees reads data, key index and expiry index of a family as they are stored.
func RawTrees(tx *Tx, family string) (trees [3][]RawRow, err error) {
	f, err := tx.find(family)
	if err != nil {
		return trees, err
	}
	for i, id := range [...]txn.TreeID{f.Data(), f.KeyIndex(), f.ExpiryIndex()} {
		c := tx.inner.Cursor(id)
		for ok := c.First(); ok; ok = c.Next() {
			trees[i] = append(trees[i], RawRow{string(c.Key()), string(c.Value()), c.Tag()})
		}
		if err := c.Err(); err != nil {
			return trees, err
		}
	}
	return trees, nil
}

// RawTx is the inner transaction, for tests that damage indexes.
func RawTx(tx *Tx) *txn.Tx { return tx.inner }

// FindFamily is the catalog entry of a family.
func FindFamily(tx *Tx, family string) (*cf.Family, error) { return tx.find(family) }

// HoldNotes removes all notes from the eviction queue until restore is called, which drops those added
// meanwhile.
func HoldNotes(db *DB) (restore func()) {
	notes := db.queue.Take(math.MaxInt)
	return func() {
		db.queue.Take(math.MaxInt)
		for _, n := range notes {
			db.queue.Add(&cf.Family{Name: n.Family, Base: n.Base}, []byte(n.Key), n.Expiry)
		}
	}
}

// Notes returns the length of the eviction queue.
func Notes(db *DB) int { return db.queue.Len() }

// EvictIdle runs the eviction of a one-shot read that found an expired key at that instant.
func EvictIdle(db *DB, now int64) { db.evictIdle(now) }

// Mark is the clock mark of this process.
func Mark(db *DB) int64 { return db.clock.mark.Load() }

// PagesRead counts pages read from the file, without reading any.
func PagesRead(db *DB) uint64 { return db.store.Stats().PagesRead }

// Waiting counts the one-shot writes that wait for the writer lock, the leader included.
func Waiting(db *DB) int {
	db.writes.mu.Lock()
	defer db.writes.mu.Unlock()
	if !db.writes.leading {
		return 0
	}
	return 1 + len(db.writes.queue)
}

// HasWaiters says whether a transaction waits for the writer lock.
func HasWaiters(db *DB) bool { return db.store.HasWaiters() }

// CanSubmitLog says whether the record of a transaction with so many changes of one tree, of so many
// bytes, can be submitted before the apply. true stays true until the next write: the file is long
// enough.
func CanSubmitLog(db *DB, changes, bytes int) (bool, error) {
	tx, err := db.store.Begin(context.Background(), true)
	if err != nil {
		return false, err
	}
	defer tx.Rollback()
	rows := make([]txn.Change, changes)
	for i := range rows {
		rows[i].Key = make([]byte, bytes/changes)
	}
	return tx.CanSubmitLog([]txn.Run{{Tree: txn.CatalogTree, Changes: rows}}), nil
}

// MaxShared is the largest number of one-shot writes in a transaction.
const MaxShared = maxGroup

// MaxBufferedRows bounds the buffered index changes of a transaction.
const MaxBufferedRows = maxBufferedIndexRows

// BufferedRows applies a batch in a transaction that is rolled back, and counts its buffered changes.
func BufferedRows(db *DB, b *Batch) (changes int, err error) {
	ops := b.contents()
	tx, err := db.oneShot.beginWrite(context.Background(), nil)
	if err != nil {
		return 0, err
	}
	defer db.oneShot.done(tx)
	defer tx.releaseBuffers()
	err = ops.replay(tx, make([]txn.Change, maxChanges))
	for _, v := range tx.buffering {
		changes += v.indexBuffer.Len()
	}
	return changes, err
}
