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

// RawTx is the transaction below, for tests that damage indexes.
func RawTx(tx *Tx) *txn.Tx { return tx.inner }

// FindFamily is the catalog entry of a family.
func FindFamily(tx *Tx, family string) (*cf.Family, error) { return tx.find(family) }

// HoldNotes takes all notes of expired keys away until restore is called, which forgets those made
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

// Notes counts the expired keys that wait to be evicted.
func Notes(db *DB) int { return db.queue.Len() }

// EvictIdle is what a one-shot read does that met an expired key at that instant.
func EvictIdle(db *DB, now int64) { db.evictIdle(now) }

// Mark is the clock mark of this process.
func Mark(db *DB) int64 { return db.clock.mark.Load() }

// PagesRead counts pages read from the file, without reading any.
func PagesRead(db *DB) uint64 { return db.store.Stats().PagesRead }

// SharedAhead says that the record of the writes which shared a transaction last was on its way
// before they were carried out.
func SharedAhead(db *DB) bool {
	db.sharing.mu.Lock()
	defer db.sharing.mu.Unlock()
	return db.sharing.ahead
}

// Waiting counts the one-shot writes that wait for the writer lock, the one that leads them
// included.
func Waiting(db *DB) int {
	db.sharing.mu.Lock()
	defer db.sharing.mu.Unlock()
	if !db.sharing.leading {
		return 0
	}
	return 1 + len(db.sharing.queue)
}

// HasWaiters says whether somebody waits for the writer lock.
func HasWaiters(db *DB) bool { return db.store.HasWaiters() }

// MayLogAhead says whether a transaction could be logged ahead that makes so many changes of one
// tree, of so many bytes. A yes stays one until something is written: the file is long enough.
func MayLogAhead(db *DB, changes, bytes int) (bool, error) {
	tx, err := db.store.Begin(context.Background(), true)
	if err != nil {
		return false, err
	}
	defer tx.Rollback()
	return tx.CanSubmitLog(1, changes, bytes, 0), nil
}

// MaxShared is how many one-shot writes share a transaction; more than Crowd take turns.
const (
	MaxShared = maxGroup
	Crowd     = smallGroup
)

// MostHeld is how many changes of indexes a transaction holds back.
const MostHeld = maxBufferedIndexRows

// HeldBack carries a batch out, in a transaction that comes to nothing, and counts what it holds
// back then.
func HeldBack(db *DB, b *Batch) (changes int, err error) {
	ops := b.held()
	tx, err := db.oneShot.beginWrite(context.Background(), nil)
	if err != nil {
		return 0, err
	}
	defer db.oneShot.done(tx)
	families := make([]*verbs, len(ops.families))
	defer releaseBuffers(families...)
	err = ops.replay(tx, families)
	for _, v := range families {
		if v.buffersIndexes() {
			changes += v.indexBuffer.Len()
		}
	}
	return changes, err
}
