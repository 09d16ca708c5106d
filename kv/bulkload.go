package kv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/ebbkv/ebb/cf"
	"github.com/ebbkv/ebb/txn"
)

// BulkLoad fills an empty family with rows whose keys strictly increase, and returns their number.
// It builds the tree bottom-up and bypasses the log: no other way is faster. When it returns nil all
// rows are durable; after an error none is stored, except that after ErrCommitUnknown the next Open
// finds all or none. It copies the slices of a row before it asks the sequence for the next one, so
// the sequence may reuse them. It holds the writer lock; ctx bounds the wait for it.
//
// In a family with a default ttl each row gets that ttl. Such rows go through the log, as one
// transaction. Errors:
// ErrCFNotFound, ErrCFNotEmpty, ErrKeyOrder, ErrKeyEmpty, ErrKeyTooLarge, ErrValueTooLarge.
func (db *DB) BulkLoad(
	ctx context.Context, family string, sorted iter.Seq2[[]byte, []byte],
) (rows int64, err error) {
	if err := db.state(true); err != nil {
		return 0, err
	}
	if sorted == nil {
		return 0, invalid("the sequence is nil")
	}
	ctx = background(ctx)
	defer db.notifyShutdown()
	for look := db.View; ; {
		rows, err := db.bulkLoad(ctx, family, sorted, look)
		if err != errMoved {
			return rows, err
		}
		// The commit that moved it may be invisible until its sync ends: a write transaction sees it.
		look = func(fn func(*Tx) error) error { return db.UpdateContext(ctx, fn) }
	}
}

// errMoved says that the family was replaced or filled between the check of it and the load.
var errMoved = errors.New("kv: family was replaced or filled meanwhile")

func (db *DB) bulkLoad(
	ctx context.Context, family string, sorted iter.Seq2[[]byte, []byte], look func(func(*Tx) error) error,
) (rows int64, err error) {
	var id txn.TreeID
	expires := false
	err = look(func(tx *Tx) error {
		f, err := tx.find(family)
		if err == nil {
			id, expires = f.Data(), f.Options.DefaultTTLMs > 0
			err = mustBeEmpty(tx.inner, f)
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	if expires {
		return db.loadRows(ctx, family, sorted)
	}
	prepared := false
	prepare := func(tx *txn.Tx) error {
		prepared = true
		f, err := cf.Lookup(tx, family)
		switch {
		case err != nil:
			return err
		case f.Data() != id || f.Options.DefaultTTLMs > 0:
			return errMoved
		}
		if err := mustBeEmpty(tx, f); err != nil {
			return err
		}
		db.clock.stamp(tx)
		return nil
	}
	var n uint64
	err = db.guarded(func() (err error) {
		n, err = db.store.BulkLoad(ctx, prepare, id, db.checkedRows(sorted))
		return err
	})
	// The order of keys is right, but the family has rows.
	if errors.Is(err, txn.ErrOrder) && !prepared {
		return 0, errMoved
	}
	if err != nil {
		return 0, fromBelow(err)
	}
	return int64(n), nil
}

// loadRows loads a family with a default ttl: one put for each row.
func (db *DB) loadRows(
	ctx context.Context, family string, sorted iter.Seq2[[]byte, []byte],
) (rows int64, err error) {
	err = db.UpdateContext(ctx, func(tx *Tx) error {
		f, err := tx.find(family)
		if err != nil {
			return err
		}
		if err := mustBeEmpty(tx.inner, f); err != nil {
			return err
		}
		v := &tx.CF(family).txMethods
		var last []byte
		for key, value := range sorted {
			if err := v.Put(key, value); err != nil {
				return err
			}
			if rows > 0 && bytes.Compare(key, last) <= 0 {
				return ErrKeyOrder
			}
			last = append(last[:0], key...)
			rows++
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return rows, nil
}

func mustBeEmpty(tx *txn.Tx, f *cf.Family) error {
	if n := tx.Rows(f.Data()); n > 0 {
		return fmt.Errorf("%w: %q has %d rows", ErrCFNotEmpty, f.Name, n)
	}
	return nil
}

// checkedRows adds the rows to a load, up to the first invalid one.
func (db *DB) checkedRows(sorted iter.Seq2[[]byte, []byte]) txn.Rows {
	return func(add func(key, value []byte, tag int64) error) error {
		for key, value := range sorted {
			err := checkKey(key, db.maxKey)
			if err == nil {
				err = checkValue(value)
			}
			if db.readersEnded.Load() {
				err = ErrClosed
			}
			if err == nil {
				err = add(key, value, 0)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
}

// find looks up a family for calls that need its trees.
func (tx *Tx) find(name string) (fam *cf.Family, err error) {
	v := &tx.CF(name).txMethods
	defer tx.leave(tx.enter(), &err)
	if err := v.ready(false); err != nil {
		return nil, err
	}
	return v.fam, nil
}
