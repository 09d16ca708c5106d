package kv

import (
	"errors"
	"fmt"
	"time"

	"github.com/ebbkv/ebb/cf"
	"github.com/ebbkv/ebb/ttl"
)

// NoExpiry is the ttl of a permanent key.
const NoExpiry time.Duration = -1

// verbs are the calls on one family in a transaction: what *CF and *Tx have in common. Each call
// enters the transaction, then checks in this order: the transaction, the family, the arguments.
type verbs struct {
	tx   *Tx
	name string

	// What the handle means as of the at-th change of the catalog by this transaction: fam, or the
	// error gone if that was dropped, or neither if nothing was found yet. See resolve.
	fam   *cf.Family
	gone  error
	at    uint32
	first *cf.Family // the family as it was first found

	indexBuffer *ttl.IndexBuffer // what is held back; nil: nothing is. See hold.
}

// ready returns what keeps a call from being carried out.
func (v *verbs) ready(write bool) error {
	if err := v.tx.alive(write); err != nil {
		return err
	}
	return v.resolve()
}

// readyKey is ready for calls on one key.
func (v *verbs) readyKey(write bool, key []byte) error {
	if err := v.ready(write); err != nil {
		return err
	}
	return checkKey(key, v.tx.db.maxKey)
}

// checkKey returns why a key cannot be taken where keys have at most so many bytes.
func checkKey(key []byte, most int) error {
	if len(key) == 0 {
		return ErrKeyEmpty
	}
	return checkKeySize(len(key), most)
}

func checkKeySize(size, most int) error {
	if size > most {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrKeyTooLarge, size, most)
	}
	return nil
}

func checkValue(value []byte) error {
	if len(value) > MaxValueSize {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrValueTooLarge, len(value), MaxValueSize)
	}
	return nil
}

// rows are the family with its expiries.
func (v *verbs) rows() ttl.Rows {
	return ttl.Rows{Tx: v.tx.inner, Family: v.fam, MaxTxnBytes: v.tx.db.maxTxnBytes}
}

// get is the one look at a row: found if it is there and not expired. An empty value is not nil.
// expiry is 0 for a permanent key; a key that is not found but has one is expired and still stored.
func (v *verbs) get(key []byte) (value []byte, expiry int64, found bool, err error) {
	if v.fam.Hollow() {
		return nil, 0, false, nil
	}
	value, expiry, found, err = v.rows().Get(key)
	if err != nil {
		return nil, 0, false, v.below(err)
	}
	if expiry != 0 && v.tx.db.clock.hides(v.tx.instant(), expiry) {
		return nil, expiry, false, nil
	}
	if found && value == nil {
		value = []byte{}
	}
	return value, expiry, found, nil
}

// info is get for the size of the value, which it does not read.
func (v *verbs) info(key []byte) (size int, expiry int64, found bool, err error) {
	if v.fam.Hollow() {
		return 0, 0, false, nil
	}
	size, expiry, found, err = v.rows().Info(key)
	if err != nil {
		return 0, 0, false, v.below(err)
	}
	return size, expiry, found && (expiry == 0 || !v.tx.db.clock.hides(v.tx.instant(), expiry)), nil
}

// below names an error of the room ttl. Damage found there ends the transaction, as damage found
// further below does.
func (tx *Tx) below(err error) error {
	if err == nil {
		return nil
	}
	if err = fromBelow(err); errors.Is(err, ErrCorrupt) && tx.dead == nil {
		tx.dead = err
	}
	return err
}

func (v *verbs) below(err error) error { return v.tx.below(err) }

// missing is what a read says of a key that is not found. An expired one is noted, to be deleted
// some time.
func (v *verbs) missing(key []byte, expiry int64) error {
	v.note(key, expiry)
	return ErrNotFound
}

func (v *verbs) note(key []byte, expiry int64) {
	if expiry != 0 && !v.tx.db.readOnly {
		v.tx.noted = true
		v.tx.db.queue.Add(v.fam, key, expiry)
	}
}

// put is the one way to write a row. expiry 0: it is permanent.
func (v *verbs) put(key, value []byte, expiry int64) error {
	return v.below(v.rows().Put(key, value, expiry))
}

// defaultExpiry is the expiry that Put gives.
func (v *verbs) defaultExpiry() (expiry int64, err error) {
	ms := v.fam.Options.DefaultTTLMs
	if ms == 0 {
		return 0, nil
	}
	expiry, err = ttl.AfterMs(v.tx.instant(), ms)
	return expiry, fromBelow(err)
}

// remove is the one way to delete a row.
func (v *verbs) remove(key []byte) error {
	return v.below(v.rows().Delete(key))
}
