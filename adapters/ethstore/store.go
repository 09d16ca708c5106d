package ethstore

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/ethereum/go-ethereum/ethdb"

	"github.com/ebbkv/ebb/kv"
)

// Store implements ethdb.KeyValueStore. It is safe for concurrent use.
//
// Keys are stored behind one byte, since go-ethereum uses the empty key. Writes of a store that was
// opened with NoSync are durable after SyncKeyValue, as go-ethereum expects.
type Store struct {
	db     *kv.DB
	family string
}

var _ ethdb.KeyValueStore = (*Store)(nil)

// mark is the first byte of each key.
const mark = 'k'

// behind is the key behind all keys.
var behind = []byte{mark + 1}

// New returns a store in a family of db, which it creates if absent. Close closes db.
func New(db *kv.DB, family string) (*Store, error) {
	return &Store{db, family}, db.EnsureCF(family, kv.CFOptions{})
}

func stored(key []byte) []byte { return append([]byte{mark}, key...) }

// bounds returns the stored form of [start, end), where a nil end is behind all keys.
func bounds(start, end []byte) (lo, hi []byte) {
	if end == nil {
		return stored(start), behind
	}
	return stored(start), stored(end)
}

// Has says whether a key is present.
func (s *Store) Has(key []byte) (bool, error) { return s.db.CF(s.family).Has(stored(key)) }

// Get returns a value, or kv.ErrNotFound.
func (s *Store) Get(key []byte) ([]byte, error) { return s.db.CF(s.family).Get(stored(key)) }

// Put stores a value.
func (s *Store) Put(key, value []byte) error { return s.db.CF(s.family).Put(stored(key), value) }

// Delete removes a key. An absent one is no error.
func (s *Store) Delete(key []byte) error { return s.db.CF(s.family).Delete(stored(key)) }

// DeleteRange deletes the keys of [start, end), all at once.
func (s *Store) DeleteRange(start, end []byte) error {
	lo, hi := bounds(start, end)
	return s.db.CF(s.family).DeleteRange(lo, hi)
}

// Stat returns the statistics of the whole store as JSON.
func (s *Store) Stat() (string, error) {
	b, err := json.MarshalIndent(s.db.Stats(), "", "  ")
	return string(b), err
}

// SyncKeyValue makes all writes durable.
func (s *Store) SyncKeyValue() error { return s.db.Sync() }

// Compact makes a checkpoint: pages that were overwritten can be used again.
func (s *Store) Compact(_, _ []byte) error { return s.db.Checkpoint(context.Background()) }

// Close closes the Ebb store.
func (s *Store) Close() error { return s.db.Close() }

// NewIterator ranges over the keys that begin with prefix, from prefix+start on, in a snapshot of its
// own. Release ends the snapshot.
func (s *Store) NewIterator(prefix, start []byte) ethdb.Iterator {
	tx, err := s.db.Begin(context.Background(), false)
	if err != nil {
		return &iterator{err: err}
	}
	lo := append(stored(prefix), start...)
	c := tx.CF(s.family).CursorIn(kv.ScanOptions{Prefix: stored(prefix), Lower: lo})
	return &iterator{tx: tx, c: c, move: (*kv.Cursor).First}
}

type iterator struct {
	tx   *kv.Tx
	c    *kv.Cursor
	move func(*kv.Cursor) bool // the next step: First, then Next; nil: behind the end
	err  error
}

func (i *iterator) Next() bool {
	if i.move == nil {
		return false
	}
	if !i.move(i.c) {
		i.move, i.err = nil, i.c.Err()
		return false
	}
	i.move = (*kv.Cursor).Next
	return true
}

func (i *iterator) Error() error { return i.err }

func (i *iterator) Key() []byte {
	if i.move == nil || !i.c.Valid() {
		return nil
	}
	return i.c.Key()[1:]
}

func (i *iterator) Value() []byte {
	if i.move == nil || !i.c.Valid() {
		return nil
	}
	return i.c.Value()
}

func (i *iterator) Release() {
	if i.tx != nil {
		i.err = errors.Join(i.err, i.tx.Rollback())
		i.tx, i.move = nil, nil
	}
}

// NewBatch returns an empty batch.
func (s *Store) NewBatch() ethdb.Batch { return &batch{store: s, inner: s.db.NewBatch()} }

// NewBatchWithSize returns an empty batch; its memory grows by itself.
func (s *Store) NewBatchWithSize(int) ethdb.Batch { return s.NewBatch() }

// A batch keeps its operations twice: as Ebb's batch, and for Replay.
type batch struct {
	store *Store
	inner *kv.Batch
	ops   []func(ethdb.KeyValueWriter) error
	size  int
}

func (b *batch) Put(key, value []byte) error {
	k, v := stored(key), append([]byte{}, value...)
	b.inner.CF(b.store.family).Put(k, v)
	b.ops = append(b.ops, func(w ethdb.KeyValueWriter) error { return w.Put(k[1:], v) })
	b.size += len(key) + len(value)
	return nil
}

func (b *batch) Delete(key []byte) error {
	k := stored(key)
	b.inner.CF(b.store.family).Delete(k)
	b.ops = append(b.ops, func(w ethdb.KeyValueWriter) error { return w.Delete(k[1:]) })
	b.size += len(key)
	return nil
}

func (b *batch) DeleteRange(start, end []byte) error {
	lo, hi := bounds(start, end)
	b.inner.CF(b.store.family).DeleteRange(lo, hi)
	all := end == nil
	b.ops = append(b.ops, func(w ethdb.KeyValueWriter) error {
		d, ok := w.(ethdb.KeyValueRangeDeleter)
		switch {
		case !ok:
			return errors.New("ethstore: the writer of a replay cannot delete ranges")
		case all:
			return d.DeleteRange(lo[1:], nil)
		}
		return d.DeleteRange(lo[1:], hi[1:])
	})
	b.size += len(start) + len(end)
	return nil
}

func (b *batch) ValueSize() int { return b.size }
func (b *batch) Write() error   { return b.store.db.Apply(context.Background(), b.inner) }
func (b *batch) Close()         { b.Reset() }

func (b *batch) Reset() {
	b.inner.Reset()
	b.ops, b.size = b.ops[:0], 0
}

func (b *batch) Replay(w ethdb.KeyValueWriter) error {
	for _, op := range b.ops {
		if err := op(w); err != nil {
			return err
		}
	}
	return nil
}
