package kv

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"time"
)

// Calls that read a value and change it, in one step of the transaction.

// Increment adds delta to a counter, an 8-byte big-endian two's complement value, and returns the
// sum. A present counter keeps its expiry. An absent one counts as 0 and gets the ttl ttlIfNew, or,
// if that is 0, the expiry that Put gives. A value of another size, or an overflow, is ErrNotCounter
// and changes nothing. To read a counter, Get it and decode the value with encoding/binary.
func (v *verbs) Increment(key []byte, delta int64, ttlIfNew time.Duration) (sum int64, err error) {
	defer v.tx.leave(v.tx.enter(), &err)
	if err := v.readyKey(true, key); err != nil {
		return 0, err
	}
	if ttlIfNew < 0 {
		return 0, fmt.Errorf("%w: %v", ErrInvalidTTL, ttlIfNew)
	}
	if err := v.expireOld(key); err != nil {
		return 0, err
	}
	value, expiry, found, err := v.get(key)
	if err != nil {
		return 0, err
	}
	var old int64
	if found {
		if len(value) != 8 {
			return 0, fmt.Errorf("%w: value of %d bytes, expected 8", ErrNotCounter, len(value))
		}
		old = int64(binary.BigEndian.Uint64(value))
	} else if expiry, err = v.expiryOfNew(ttlIfNew); err != nil {
		return 0, err
	}
	if (delta > 0 && old > math.MaxInt64-delta) || (delta < 0 && old < math.MinInt64-delta) {
		return 0, fmt.Errorf("%w: the sum is not an int64", ErrNotCounter)
	}
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(old+delta))
	if err := v.put(key, b[:], expiry); err != nil {
		return 0, err
	}
	return old + delta, nil
}

// expiryOfNew is the expiry of a new key with ttl d, or, if d is 0, the expiry that Put gives.
func (v *familyView) expiryOfNew(d time.Duration) (expiry int64, err error) {
	if d != 0 {
		return v.after(d)
	}
	return v.defaultExpiry()
}

// GetAndExpire returns a copy of the value of key, and sets its expiry as Expire does, with its errors:
// a session that is used lives on.
func (v *verbs) GetAndExpire(key []byte, ttl time.Duration) (value []byte, err error) {
	defer v.tx.leave(v.tx.enter(), &err)
	if err := v.readyKey(true, key); err != nil {
		return nil, err
	}
	expiry, err := v.after(ttl)
	if err != nil {
		return nil, err
	}
	stored, _, found, err := v.get(key)
	if err == nil && !found {
		err = ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	// Before the change, which may move the row.
	value = appendValue(make([]byte, 0, len(stored)), stored)
	if err := v.below(v.rows().SetExpiry(key, expiry)); err != nil {
		return nil, err
	}
	return value, nil
}

// CompareAndSwap sets key to new, as PutWith does, if its value is old, and says whether it did. A
// nil old requires the key to be absent. The conditions of o may repeat that, not contradict it.
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
	expiry, err := o.expiry(&v.familyView)
	if err != nil {
		return false, err
	}
	if old == nil {
		if err := v.expireOld(key); err != nil {
			return false, err
		}
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

// CompareAndDelete removes key if its value is old, and says whether it did. A nil old never
// matches.
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
	err = v.remove(key)
	return err == nil, err
}

// is says whether the value of key is old, and its expiry. For a nil old: whether the key is absent.
func (v *familyView) is(key, old []byte) (expiry int64, same bool, err error) {
	value, expiry, found, err := v.get(key)
	if err != nil || old == nil {
		return expiry, err == nil && !found, err
	}
	return expiry, found && bytes.Equal(value, old), nil
}
