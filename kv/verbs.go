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

// verbs are the calls on one family in a transaction: the common methods of *Tx and *CF. Each call
// enters the transaction, then checks in this order: the transaction, the family, the arguments.
type verbs struct{ familyView }

// familyView is one family as a transaction sees it.
type familyView struct {
	tx   *Tx
	name string

	// The family to which the handle is bound, nil if none was found yet, as it was after the at-th
	// change of the catalog by this transaction: dropped, or not. See resolve.
	fam     *cf.Family
	at      uint32
	dropped bool

	indexBuffer *ttl.IndexBuffer // buffered index changes, or nil; see bufferIndexes
	newest      *lastAppend      // or nil
}

// lastAppend is the partition of the last Append, as it was after the at-th change of the catalog,
// and memory for the key of a row there.
type lastAppend struct {
	partition cf.Partition
	at        uint32
	key       []byte
}

// ready returns the error that every call on keys gets in the present state of transaction and
// family.
func (v *familyView) ready(write bool) error {
	err := v.readyAny(write)
	if err == nil && v.fam.Partitioned() {
		err = fmt.Errorf("%w: %q", ErrPartitioned, v.name)
	}
	return err
}

// readyAny is ready for calls that work on time-partitioned families, too.
func (v *familyView) readyAny(write bool) error {
	if err := v.tx.alive(write); err != nil {
		return err
	}
	return v.resolve()
}

// readyKey is ready for calls on one key.
func (v *familyView) readyKey(write bool, key []byte) error {
	if err := v.ready(write); err != nil {
		return err
	}
	return checkKey(key, v.tx.db.maxKey)
}

// checkKey returns the error for a key that is empty or longer than most bytes, or nil.
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

// rows is the family's view of package ttl.
func (v *familyView) rows() ttl.Rows {
	return ttl.Rows{Tx: v.tx.inner, Family: v.fam}
}

// get reads a row: found if it is present and not expired. An empty value is not nil. expiry is 0
// for a permanent key; a key that is not found but has one is expired and still stored.
func (v *familyView) get(key []byte) (value []byte, expiry int64, found bool, err error) {
	if v.fam.NoTrees() {
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

// info is get for the size of the value, without reading it.
func (v *familyView) info(key []byte) (size int, expiry int64, found bool, err error) {
	if v.fam.NoTrees() {
		return 0, 0, false, nil
	}
	size, expiry, found, err = v.rows().Info(key)
	if err != nil {
		return 0, 0, false, v.below(err)
	}
	return size, expiry, found && (expiry == 0 || !v.tx.db.clock.hides(v.tx.instant(), expiry)), nil
}

// below maps an error of package ttl. Damage that ttl found ends the transaction, as damage that txn
// finds does.
func (tx *Tx) below(err error) error {
	if err == nil {
		return nil
	}
	if err = fromBelow(err); errors.Is(err, ErrCorrupt) && !tx.dead {
		return tx.die(err)
	}
	return err
}

func (v *familyView) below(err error) error { return v.tx.below(err) }

// missing returns the error for a key that was not found. It queues an expired key for eviction.
func (v *familyView) missing(key []byte, expiry int64) error {
	v.noteExpired(key, expiry)
	return ErrNotFound
}

func (v *familyView) noteExpired(key []byte, expiry int64) {
	if expiry != 0 && !v.tx.db.readOnly {
		v.tx.foundExpired = true
		v.tx.db.queue.Add(v.fam, key, expiry)
	}
}

// put writes a row; every put ends here. expiry 0: permanent.
func (v *familyView) put(key, value []byte, expiry int64) error {
	if err := v.expireOld(key); err != nil {
		return err
	}
	return v.below(v.rows().Put(key, value, expiry))
}

// defaultExpiry is the expiry of a row that Put writes.
func (v *familyView) defaultExpiry() (expiry int64, err error) {
	ms := v.fam.Options.DefaultTTLMs
	if ms == 0 {
		return 0, nil
	}
	expiry, err = ttl.AfterMs(v.tx.instant(), ms)
	return expiry, fromBelow(err)
}

// remove deletes a row; every delete of a key ends here.
func (v *familyView) remove(key []byte) error {
	if err := v.expireOld(key); err != nil {
		return err
	}
	return v.below(v.rows().Delete(key))
}
