package kv

import (
	"bytes"
	"time"

	"github.com/ebbkv/ebb/internal/openhook"
	"github.com/ebbkv/ebb/internal/prefetch"
	"github.com/ebbkv/ebb/ttl"
)

// Calls that change nothing.

// Get returns the value of key, or ErrNotFound. An empty value is not nil. Copy a value to keep it, or
// use GetAppend.
func (v *verbs) Get(key []byte) (value []byte, err error) {
	defer v.tx.leave(v.tx.enter(), &err)
	value, _, err = v.present(key)
	return value, err
}

// present is readyKey and get of a key: ErrNotFound without a live row.
func (v *familyView) present(key []byte) (value []byte, expiry int64, err error) {
	if err := v.readyKey(false, key); err != nil {
		return nil, 0, err
	}
	value, expiry, found, err := v.get(key)
	if err == nil && !found {
		err = v.missing(key, expiry)
	}
	return value, expiry, err
}

// GetTTL returns the value of key as Get does, and its remaining ttl as TTL does. ErrNotFound if the
// key is absent or expired.
func (v *verbs) GetTTL(key []byte) (value []byte, left time.Duration, err error) {
	defer v.tx.leave(v.tx.enter(), &err)
	value, expiry, err := v.present(key)
	if err != nil {
		return nil, 0, err
	}
	return value, v.left(expiry), nil
}

// getCopy is GetTTL for a transaction that ends with the call. It copies under the guard: the copy
// may be the first access to all bytes of the value.
func (v *familyView) getCopy(key []byte) (value []byte, left time.Duration, err error) {
	defer v.tx.leave(v.tx.enter(), &err)
	stored, expiry, err := v.present(key)
	if err != nil {
		return nil, 0, err
	}
	return appendValue(make([]byte, 0, len(stored)), stored), v.left(expiry), nil
}

// left is the remaining ttl of a key with that expiry.
func (v *familyView) left(expiry int64) time.Duration {
	if expiry == 0 {
		return NoExpiry
	}
	return ttl.Remaining(v.tx.instant(), expiry)
}

// GetAppend appends the value of key to dst and returns the extended slice; on an error, ErrNotFound
// included, it returns dst.
func (v *verbs) GetAppend(dst, key []byte) (longer []byte, err error) {
	defer v.tx.leave(v.tx.enter(), &err)
	longer = dst // after a fault, too
	value, _, err := v.present(key)
	if err != nil {
		return dst, err
	}
	return appendValue(dst, value), nil
}

func appendValue(dst, value []byte) []byte {
	n := len(dst)
	if len(value) > cap(dst)-n {
		return append(dst, value...)
	}
	dst = dst[:n+len(value)]
	prefetch.Copy(dst[n:], value)
	return dst
}

// Has says whether key is present.
func (v *verbs) Has(key []byte) (found bool, err error) {
	defer v.tx.leave(v.tx.enter(), &err)
	if err := v.readyKey(false, key); err != nil {
		return false, err
	}
	_, expiry, found, err := v.info(key)
	if err == nil && !found {
		v.noteExpired(key, expiry)
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

// TTL returns the remaining ttl of key, exact to the millisecond: NoExpiry (-1) if it is permanent, 0
// if it is expired but still stored, ErrNotFound if it is absent. It does not evict the key: a second
// call returns the same. It returns at most the longest Duration (292 years).
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

// Expiry returns the expiry of key: the zero Time if it is permanent, ErrNotFound if it is absent or
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

// CountLive returns the number of rows that are not expired, in time independent of that number.
func (v *verbs) CountLive() (rows int64, err error) {
	defer v.tx.leave(v.tx.enter(), &err)
	if err := v.readyAny(false); err != nil || v.fam.NoTrees() {
		return 0, err
	}
	if v.fam.Partitioned() {
		return v.countTimed(true)
	}
	rows = int64(v.tx.inner.Rows(v.fam.Data()))
	if r := v.rows(); r.HasExpiries() {
		due, err := r.Due(v.tx.instant())
		if err != nil {
			return 0, v.below(err)
		}
		if due > 0 {
			v.tx.db.clock.observeExpired(v.tx.instant())
		}
		rows -= due
	}
	return rows, nil
}

func init() {
	openhook.DueAt = func(tx any, family string, atMs int64) (int64, error) {
		return tx.(*Tx).CF(family).dueAt(atMs)
	}
}

// dueAt counts the stored rows that are expired at an instant, which may be one to come.
func (v *verbs) dueAt(atMs int64) (rows int64, err error) {
	defer v.tx.leave(v.tx.enter(), &err)
	if err := v.readyAny(false); err != nil || v.fam.NoTrees() {
		return 0, err
	}
	if v.fam.Partitioned() {
		rows, err = v.timed().CountDue(atMs)
	} else {
		rows, err = v.rows().Due(atMs)
	}
	return rows, v.below(err)
}

// NextExpiry returns the earliest expiry in the family; ok is false if no key has one. Rows that are
// expired and still stored count.
func (v *verbs) NextExpiry() (at time.Time, ok bool, err error) {
	defer v.tx.leave(v.tx.enter(), &err)
	if err := v.readyAny(false); err != nil {
		return time.Time{}, false, err
	}
	if v.fam.Partitioned() {
		return v.nextTimedExpiry()
	}
	expiry, ok, err := v.rows().First()
	if err != nil || !ok {
		return time.Time{}, false, v.below(err)
	}
	v.tx.db.clock.hides(v.tx.instant(), expiry) // The caller learns that a key has expired.
	return time.UnixMilli(expiry), true, nil
}

// Count returns the number of stored rows, expired ones included, without reading them.
func (v *verbs) Count() (rows int64, err error) {
	defer v.tx.leave(v.tx.enter(), &err)
	if err := v.readyAny(false); err != nil || v.fam.NoTrees() {
		return 0, err
	}
	if v.fam.Partitioned() {
		return v.countTimed(false)
	}
	return int64(v.tx.inner.Rows(v.fam.Data())), nil
}

// CountRange returns the number of stored rows of [lo, hi), expired ones included, from the row counts
// in the branches: it reads at most two pages of each level of the tree. An empty bound is no bound;
// lo at or above hi counts nothing.
func (v *verbs) CountRange(lo, hi []byte) (rows int64, err error) {
	defer v.tx.leave(v.tx.enter(), &err)
	if err := v.ready(false); err != nil || v.fam.NoTrees() {
		return 0, err
	}
	lo, hi = bound(lo), bound(hi)
	if hi != nil && bytes.Compare(lo, hi) >= 0 {
		return 0, nil
	}
	n, err := v.tx.inner.RowsIn(v.fam.Data(), lo, hi)
	return int64(n), v.below(err)
}

// bound is a bound of a range as the packages below take it: nil if it is empty.
func bound(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return b
}
