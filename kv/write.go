package kv

import (
	"bytes"
	"time"

	"github.com/ebbkv/ebb/ttl"
)

// Calls that change rows without reading their values.

// Put sets key to a copy of value; nil is stored as empty. The key becomes permanent, or gets the
// family's default ttl. Errors: ErrKeyEmpty, ErrKeyTooLarge, ErrValueTooLarge, ErrTxnTooLarge.
func (v *verbs) Put(key, value []byte) error { return v.putRow(key, value, opPut, 0) }

// putRow puts a row with the expiry of that kind of operation.
func (v *familyView) putRow(key, value []byte, kind byte, when int64) (err error) {
	defer v.tx.leave(v.tx.enter(), &err)
	if err := v.readyWrite(key, value); err != nil {
		return err
	}
	expiry, err := v.expiry(kind, when)
	if err != nil {
		return err
	}
	return v.put(key, value, expiry)
}

// readyWrite is readyKey for calls that store a value.
func (v *familyView) readyWrite(key, value []byte) error {
	if err := v.readyKey(true, key); err != nil {
		return err
	}
	return checkValue(value)
}

// PutTTL is Put with an expiry: ttl after now, rounded up to a millisecond. ErrInvalidTTL if ttl is
// not positive, or the expiry overflows.
func (v *verbs) PutTTL(key, value []byte, ttl time.Duration) error {
	return v.putRow(key, value, opPutTTL, int64(ttl))
}

// PutExpireAt is Put with the expiry at, rounded up to a millisecond. ErrInvalidTTL if it is not
// after now.
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

// after is the expiry of a key that lives for d from the transaction's instant on.
func (v *familyView) after(d time.Duration) (expiry int64, err error) {
	expiry, err = ttl.After(v.tx.instant(), d)
	return expiry, fromBelow(err)
}

// until is the expiry of a key that expires at t.
func (v *familyView) until(t time.Time) (expiry int64, err error) {
	expiry, err = ttl.At(v.tx.instant(), t)
	return expiry, fromBelow(err)
}

// expiry is the expiry that o sets; 0: none. Its check has passed.
func (o *PutOptions) expiry(v *familyView) (expiry int64, err error) {
	switch {
	case o.TTL > 0:
		return v.after(o.TTL)
	case !o.ExpireAt.IsZero():
		return v.until(o.ExpireAt)
	case o.NoExpiry || o.KeepTTL:
		return 0, nil
	}
	return v.defaultExpiry()
}

// PutWith is Put with options, and says whether it wrote. If a condition does not hold it changes
// nothing and returns false without an error.
func (v *verbs) PutWith(key, value []byte, o PutOptions) (written bool, err error) {
	defer v.tx.leave(v.tx.enter(), &err)
	if err := v.readyWrite(key, value); err != nil {
		return false, err
	}
	if err := o.check(); err != nil {
		return false, err
	}
	expiry, err := o.expiry(&v.familyView)
	if err != nil {
		return false, err
	}
	if o.IfAbsent || o.IfPresent || o.KeepTTL {
		if !o.IfPresent {
			if err := v.expireOld(key); err != nil {
				return false, err
			}
		}
		_, old, found, err := v.info(key)
		if err != nil || (found && o.IfAbsent) || (!found && o.IfPresent) {
			return false, err
		}
		if o.KeepTTL {
			err := v.putKeep(key, value, old, found)
			return err == nil, err
		}
	}
	err = v.put(key, value, expiry)
	return err == nil, err
}

// putKeep stores a value and keeps the expiry old of a present key. The caller has read the key.
func (v *familyView) putKeep(key, value []byte, old int64, found bool) error {
	if found {
		return v.put(key, value, old)
	}
	expiry, err := v.defaultExpiry()
	if err != nil {
		return err
	}
	return v.put(key, value, expiry)
}

// Delete removes key. For an absent key it returns nil.
func (v *verbs) Delete(key []byte) (err error) {
	defer v.tx.leave(v.tx.enter(), &err)
	if err := v.readyKey(true, key); err != nil {
		return err
	}
	return v.remove(key)
}

// Expire sets the expiry of key to ttl after now, without rewriting the value. ErrNotFound if the key
// is absent or expired; ErrInvalidTTL as for PutTTL.
func (v *verbs) Expire(key []byte, ttl time.Duration) error {
	return v.setExpiry(key, func() (int64, error) { return v.after(ttl) })
}

// ExpireAt is Expire with an instant, which must be after now (ErrInvalidTTL).
func (v *verbs) ExpireAt(key []byte, at time.Time) error {
	return v.setExpiry(key, func() (int64, error) { return v.until(at) })
}

// Persist is Expire that makes the key permanent.
func (v *verbs) Persist(key []byte) error {
	return v.setExpiry(key, func() (int64, error) { return 0, nil })
}

// setExpiry sets the expiry of a key to the result of want; 0: permanent. An error of want precedes
// ErrNotFound.
func (v *familyView) setExpiry(key []byte, want func() (int64, error)) (err error) {
	defer v.tx.leave(v.tx.enter(), &err)
	if err := v.readyKey(true, key); err != nil {
		return err
	}
	expiry, err := want()
	if err != nil {
		return err
	}
	_, _, found, err := v.info(key)
	if err == nil && !found {
		err = ErrNotFound
	}
	if err != nil {
		return err
	}
	return v.below(v.rows().SetExpiry(key, expiry))
}

// DeleteRange removes the keys of [lo, hi). An empty bound is no bound; lo at or above hi removes
// nothing. Subtrees inside the range are unlinked whole: rows without an expiry cost nothing each,
// one with an expiry some microseconds at most and as many bytes of log as its key (docs/ttl.md).
func (v *verbs) DeleteRange(lo, hi []byte) (err error) {
	defer v.tx.leave(v.tx.enter(), &err)
	if err := v.ready(true); err != nil {
		return err
	}
	return v.removeRange(lo, hi)
}

// removeRange is DeleteRange for a caller that has entered.
func (v *familyView) removeRange(lo, hi []byte) error {
	lo, hi = bound(lo), bound(hi)
	switch {
	case lo == nil && hi == nil:
		return v.below(v.rows().Clear())
	case hi != nil && bytes.Compare(lo, hi) >= 0:
		return nil
	}
	return v.below(v.rows().DeleteRange(lo, hi))
}

// DeletePrefix is DeleteRange of the keys that begin with p; an empty p is every key.
func (v *verbs) DeletePrefix(p []byte) error { return v.DeleteRange(p, appendAfterPrefix(nil, p)) }

// Clear removes every key, in time independent of their number and of expiries.
func (v *verbs) Clear() (err error) {
	defer v.tx.leave(v.tx.enter(), &err)
	if err := v.readyAny(true); err != nil {
		return err
	}
	if v.fam.Partitioned() {
		return v.clearTimed()
	}
	return v.removeRange(nil, nil)
}
