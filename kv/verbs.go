package kv

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/ebbkv/ebb/cf"
	"github.com/ebbkv/ebb/ttl"
)

// NoExpiry is the ttl of a permanent key.
const NoExpiry time.Duration = -1

// verbs are the calls on one family in a transaction: what *CF and *Tx have in common. Each call enters the
// transaction, then checks in this order: the transaction, the family, the arguments.
type verbs struct {
	tx   *Tx
	name string

	// What the handle means as of the at-th change of the catalog by this transaction: fam, or the error gone if that
	// was dropped, or neither if nothing was found yet. See resolve.
	fam   *cf.Family
	gone  error
	at    uint32
	first *cf.Family // the family as it was first found
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
	return checkKey(key, v.tx.db)
}

func checkKey(key []byte, db *DB) error {
	if len(key) == 0 {
		return ErrKeyEmpty
	}
	if limit := db.MaxKeySize(); len(key) > limit {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrKeyTooLarge, len(key), limit)
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

// get is the one look at a row: found if it is there and not expired. An empty value is not nil. expiry is 0 for a
// permanent key; a key that is not found but has one is expired and still stored.
func (v *verbs) get(key []byte) (value []byte, expiry int64, found bool, err error) {
	if v.fam.Hollow() {
		return nil, 0, false, nil
	}
	value, expiry, found, err = v.rows().Get(key)
	if err != nil {
		return nil, 0, false, v.below(err)
	}
	if expiry != 0 && ttl.Expired(v.tx.instant(), expiry) {
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
	return size, expiry, found && (expiry == 0 || !ttl.Expired(v.tx.instant(), expiry)), nil
}

// below names an error of the room ttl. Damage found there ends the transaction, as damage found further below does.
func (tx *Tx) below(err error) error {
	if err = fromBelow(err); errors.Is(err, ErrCorrupt) && tx.dead == nil {
		tx.dead = err
	}
	return err
}

func (v *verbs) below(err error) error { return v.tx.below(err) }

// missing is what a read says of a key that is not found. An expired one is noted, to be deleted some time.
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

// usual is the expiry that Put gives.
func (v *verbs) usual() (expiry int64, err error) {
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

// Get returns the value of key, or ErrNotFound. The slice is read-only and valid until the transaction ends; an empty
// value is not nil.
func (v *verbs) Get(key []byte) (value []byte, err error) {
	defer v.tx.leave(v.tx.enter(), &err)
	if err := v.readyKey(false, key); err != nil {
		return nil, err
	}
	value, expiry, found, err := v.get(key)
	if err == nil && !found {
		err = v.missing(key, expiry)
	}
	return value, err
}

// GetTTL returns the value of key as Get does, with what TTL says. ErrNotFound if the key is absent or expired.
func (v *verbs) GetTTL(key []byte) (value []byte, left time.Duration, err error) {
	defer v.tx.leave(v.tx.enter(), &err)
	if err := v.readyKey(false, key); err != nil {
		return nil, 0, err
	}
	value, expiry, found, err := v.get(key)
	if err == nil && !found {
		err = v.missing(key, expiry)
	}
	if err != nil {
		return nil, 0, err
	}
	return value, v.left(expiry), nil
}

// left is the ttl of a key with that expiry.
func (v *verbs) left(expiry int64) time.Duration {
	if expiry == 0 {
		return NoExpiry
	}
	return ttl.Remaining(v.tx.instant(), expiry)
}

// GetAppend appends the value of key to dst and returns the longer slice; on an error, ErrNotFound included, dst.
func (v *verbs) GetAppend(dst, key []byte) (longer []byte, err error) {
	defer v.tx.leave(v.tx.enter(), &err)
	if err := v.readyKey(false, key); err != nil {
		return dst, err
	}
	value, expiry, found, err := v.get(key)
	if err == nil && !found {
		err = v.missing(key, expiry)
	}
	if err != nil {
		return dst, err
	}
	return append(dst, value...), nil
}

// Has says whether key is there.
func (v *verbs) Has(key []byte) (found bool, err error) {
	defer v.tx.leave(v.tx.enter(), &err)
	if err := v.readyKey(false, key); err != nil {
		return false, err
	}
	_, expiry, found, err := v.info(key)
	if err == nil && !found {
		v.note(key, expiry)
	}
	return found, err
}

// Size returns the length of the value of key in bytes without reading it, or ErrNotFound.
func (v *verbs) Size(key []byte) (size int, err error) {
	defer v.tx.leave(v.tx.enter(), &err)
	if err := v.readyKey(false, key); err != nil {
		return 0, err
	}
	size, expiry, found, err := v.info(key)
	if err == nil && !found {
		return 0, v.missing(key, expiry)
	}
	return size, err
}

// TTL returns what is left of key's life, exact to the millisecond: NoExpiry (-1) if it is permanent, 0 if it is expired
// but still stored, ErrNotFound if it is absent. It changes nothing, so that it answers the same when asked again. More
// than a Duration holds (292 years) is the longest one.
func (v *verbs) TTL(key []byte) (left time.Duration, err error) {
	defer v.tx.leave(v.tx.enter(), &err)
	if err := v.readyKey(false, key); err != nil {
		return 0, err
	}
	_, expiry, found, err := v.info(key)
	if err == nil && !found && expiry == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return 0, err
	}
	return v.left(expiry), nil
}

// Expiry returns the instant at which key is gone: the zero Time if it is permanent, ErrNotFound if it is absent or
// expired.
func (v *verbs) Expiry(key []byte) (at time.Time, err error) {
	defer v.tx.leave(v.tx.enter(), &err)
	if err := v.readyKey(false, key); err != nil {
		return time.Time{}, err
	}
	_, expiry, found, err := v.info(key)
	if err == nil && !found {
		err = ErrNotFound
	}
	if err != nil || expiry == 0 {
		return time.Time{}, err
	}
	return time.UnixMilli(expiry), nil
}

// Put sets key to a copy of value; nil is stored as empty. The key is permanent, or gets the family's default ttl.
func (v *verbs) Put(key, value []byte) (err error) {
	defer v.tx.leave(v.tx.enter(), &err)
	if err := v.readyWrite(key, value); err != nil {
		return err
	}
	expiry, err := v.usual()
	if err != nil {
		return err
	}
	return v.put(key, value, expiry)
}

// readyWrite is readyKey for calls that store a value.
func (v *verbs) readyWrite(key, value []byte) error {
	if err := v.readyKey(true, key); err != nil {
		return err
	}
	return checkValue(value)
}

// PutTTL is Put with an expiry: ttl from now on, rounded up to a millisecond. ErrInvalidTTL if it is not positive, or
// the expiry is beyond what can be stored.
func (v *verbs) PutTTL(key, value []byte, ttl time.Duration) (err error) {
	defer v.tx.leave(v.tx.enter(), &err)
	if err := v.readyWrite(key, value); err != nil {
		return err
	}
	expiry, err := v.after(ttl)
	if err != nil {
		return err
	}
	return v.put(key, value, expiry)
}

// PutExpireAt is Put with an expiry, rounded up to a millisecond. ErrInvalidTTL if it is not after now.
func (v *verbs) PutExpireAt(key, value []byte, at time.Time) (err error) {
	defer v.tx.leave(v.tx.enter(), &err)
	if err := v.readyWrite(key, value); err != nil {
		return err
	}
	expiry, err := v.until(at)
	if err != nil {
		return err
	}
	return v.put(key, value, expiry)
}

// after is the expiry of what lives for d from the transaction's instant on.
func (v *verbs) after(d time.Duration) (expiry int64, err error) {
	expiry, err = ttl.After(v.tx.instant(), d)
	return expiry, fromBelow(err)
}

// until is the expiry of what is gone at t.
func (v *verbs) until(t time.Time) (expiry int64, err error) {
	expiry, err = ttl.At(v.tx.instant(), t)
	return expiry, fromBelow(err)
}

// expiry is what o asks for, or 0 if it asks for nothing. Its check has passed.
func (o *PutOptions) expiry(v *verbs) (expiry int64, err error) {
	switch {
	case o.TTL > 0:
		return v.after(o.TTL)
	case !o.ExpireAt.IsZero():
		return v.until(o.ExpireAt)
	case o.NoExpiry || o.KeepTTL:
		return 0, nil
	}
	return v.usual()
}

// PutWith is Put with options, and says whether it wrote: not if a condition did not hold. A loser changes nothing.
func (v *verbs) PutWith(key, value []byte, o PutOptions) (written bool, err error) {
	defer v.tx.leave(v.tx.enter(), &err)
	if err := v.readyWrite(key, value); err != nil {
		return false, err
	}
	if err := o.check(); err != nil {
		return false, err
	}
	expiry, err := o.expiry(v)
	if err != nil {
		return false, err
	}
	if o.IfAbsent || o.IfPresent || o.KeepTTL {
		_, old, found, err := v.info(key)
		if err != nil || (found && o.IfAbsent) || (!found && o.IfPresent) {
			return false, err
		}
		if o.KeepTTL {
			err := v.putKeep(key, value, old, found)
			return err == nil, err
		}
	}
	if err := v.put(key, value, expiry); err != nil {
		return false, err
	}
	return true, nil
}

// putKeep stores a value and leaves the expiry of a key that is there as it is. The key was looked at before.
func (v *verbs) putKeep(key, value []byte, old int64, found bool) error {
	if found {
		return v.put(key, value, old)
	}
	expiry, err := v.usual()
	if err != nil {
		return err
	}
	return v.put(key, value, expiry)
}

// Delete removes key. An absent key is nil.
func (v *verbs) Delete(key []byte) (err error) {
	defer v.tx.leave(v.tx.enter(), &err)
	if err := v.readyKey(true, key); err != nil {
		return err
	}
	return v.remove(key)
}

// Expire gives key a new expiry, ttl from now on, and does not rewrite its value. ErrNotFound if it is absent or expired.
func (v *verbs) Expire(key []byte, ttl time.Duration) error {
	return v.setExpiry(key, func() (int64, error) { return v.after(ttl) })
}

// ExpireAt is Expire with an instant, which must be after now.
func (v *verbs) ExpireAt(key []byte, at time.Time) error {
	return v.setExpiry(key, func() (int64, error) { return v.until(at) })
}

// Persist makes key permanent and does not rewrite its value. ErrNotFound if it is absent or expired.
func (v *verbs) Persist(key []byte) error {
	return v.setExpiry(key, func() (int64, error) { return 0, nil })
}

// setExpiry gives a key the expiry that want returns, 0 meaning none. What is wrong with that comes before the look.
func (v *verbs) setExpiry(key []byte, want func() (int64, error)) (err error) {
	defer v.tx.leave(v.tx.enter(), &err)
	if err := v.readyKey(true, key); err != nil {
		return err
	}
	expiry, err := want()
	if err != nil {
		return err
	}
	_, _, found, err := v.info(key)
	if err != nil {
		return err
	}
	if !found {
		return ErrNotFound
	}
	return v.below(v.rows().SetExpiry(key, expiry))
}

// Increment adds delta to a counter, an 8-byte big-endian two's complement value, and returns the sum. A counter that is
// there keeps its expiry; an absent one counts as 0 and lives for ttlIfNew, or, if that is 0, as Put makes it. A value
// of another size, or an overflow, is ErrNotCounter and changes nothing.
func (v *verbs) Increment(key []byte, delta int64, ttlIfNew time.Duration) (sum int64, err error) {
	defer v.tx.leave(v.tx.enter(), &err)
	if err := v.readyKey(true, key); err != nil {
		return 0, err
	}
	var expiry int64 // of a new counter
	if ttlIfNew != 0 {
		expiry, err = v.after(ttlIfNew)
	} else {
		expiry, err = v.usual()
	}
	if err != nil {
		return 0, err
	}
	value, kept, found, err := v.get(key)
	if err != nil {
		return 0, err
	}
	var old int64
	if found {
		if len(value) != 8 {
			return 0, fmt.Errorf("%w: value of %d bytes, expected 8", ErrNotCounter, len(value))
		}
		old = int64(binary.BigEndian.Uint64(value))
	}
	if (delta > 0 && old > math.MaxInt64-delta) || (delta < 0 && old < math.MinInt64-delta) {
		return 0, fmt.Errorf("%w: the sum is not an int64", ErrNotCounter)
	}
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(old+delta))
	if found {
		expiry = kept
	}
	if err := v.put(key, b[:], expiry); err != nil {
		return 0, err
	}
	return old + delta, nil
}

// CompareAndSwap sets key to new as PutWith would if its value is old, and says whether it did. old nil means: the key
// must be absent. The conditions of o may repeat that, not contradict it.
func (v *verbs) CompareAndSwap(key, old, new []byte, o PutOptions) (swapped bool, err error) {
	defer v.tx.leave(v.tx.enter(), &err)
	if err := v.readyWrite(key, new); err != nil {
		return false, err
	}
	if err := o.check(); err != nil {
		return false, err
	}
	if (old == nil && o.IfPresent) || (old != nil && o.IfAbsent) {
		return false, invalid("PutOptions: contradict the old value")
	}
	expiry, err := o.expiry(v)
	if err != nil {
		return false, err
	}
	kept, same, err := v.is(key, old)
	if err != nil || !same {
		return false, err
	}
	if o.KeepTTL {
		err = v.putKeep(key, new, kept, old != nil)
	} else {
		err = v.put(key, new, expiry)
	}
	return err == nil, err
}

// CompareAndDelete removes key if its value is old, and says whether it did. A nil old matches no value.
func (v *verbs) CompareAndDelete(key, old []byte) (deleted bool, err error) {
	defer v.tx.leave(v.tx.enter(), &err)
	if err := v.readyKey(true, key); err != nil {
		return false, err
	}
	if old == nil {
		return false, nil
	}
	_, same, err := v.is(key, old)
	if err != nil || !same {
		return false, err
	}
	if err := v.remove(key); err != nil {
		return false, err
	}
	return true, nil
}

// is says whether the value of key is old, and when it expires; nil: whether the key is absent.
func (v *verbs) is(key, old []byte) (expiry int64, same bool, err error) {
	value, expiry, found, err := v.get(key)
	if err != nil || old == nil {
		return expiry, err == nil && !found, err
	}
	return expiry, found && bytes.Equal(value, old), nil
}

// DeleteRange removes the keys of [lo, hi). An empty bound does not bound; lo at or above hi removes nothing. Subtrees
// that lie inside are unlinked whole.
func (v *verbs) DeleteRange(lo, hi []byte) (err error) {
	defer v.tx.leave(v.tx.enter(), &err)
	if err := v.ready(true); err != nil {
		return err
	}
	if len(lo) == 0 {
		lo = nil
	}
	if len(hi) == 0 {
		hi = nil
	}
	switch {
	case lo == nil && hi == nil:
		return v.below(v.rows().Clear())
	case hi != nil && bytes.Compare(lo, hi) >= 0:
		return nil
	}
	return v.below(v.rows().DeleteRange(lo, hi))
}

// DeletePrefix removes the keys that begin with p; an empty p is every key.
func (v *verbs) DeletePrefix(p []byte) error { return v.DeleteRange(p, afterPrefix(p)) }

// Clear removes every key; the work does not depend on their number.
func (v *verbs) Clear() error { return v.DeleteRange(nil, nil) }

// CountLive returns the number of rows that are not expired. It reads as many rows of an index as are.
func (v *verbs) CountLive() (rows int64, err error) {
	defer v.tx.leave(v.tx.enter(), &err)
	if err := v.ready(false); err != nil || v.fam.Hollow() {
		return 0, err
	}
	rows = int64(v.tx.inner.Rows(v.fam.Data()))
	if r := v.rows(); r.Timed() {
		due, err := r.Due(v.tx.instant())
		if err != nil {
			return 0, v.below(err)
		}
		rows -= due
	}
	return rows, nil
}

// NextExpiry returns the earliest expiry in the family; ok is false if no key has one. Rows that are expired and still
// stored count.
func (v *verbs) NextExpiry() (at time.Time, ok bool, err error) {
	defer v.tx.leave(v.tx.enter(), &err)
	if err := v.ready(false); err != nil {
		return time.Time{}, false, err
	}
	expiry, ok, err := v.rows().First()
	if err != nil || !ok {
		return time.Time{}, false, v.below(err)
	}
	return time.UnixMilli(expiry), true, nil
}

// Count returns the number of stored rows, expired ones included, without reading them.
func (v *verbs) Count() (rows int64, err error) {
	defer v.tx.leave(v.tx.enter(), &err)
	if err := v.ready(false); err != nil || v.fam.Hollow() {
		return 0, err
	}
	return int64(v.tx.inner.Rows(v.fam.Data())), nil
}
