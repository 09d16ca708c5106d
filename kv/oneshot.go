package kv

import (
	"context"
	"time"
)

// oneShot are the one-shot calls on one family: what *DB and *Family have in common. A read takes
// the newest visible state; a write is a transaction of its own with the store's durability, or
// shares one with others that were made at the same time, and waits for other writers without
// bound.
type oneShot struct {
	db   *DB
	name string
}

// readOnce runs one call in a read transaction of its own.
func readOnce[T any](s *oneShot, call func(*verbs) (T, error)) (result T, err error) {
	tx, err := s.beginRead()
	if err != nil {
		return result, err
	}
	result, now, noted, err := runOnce(s, tx, call)
	if noted {
		s.db.evictIdle(now)
	}
	return result, err
}

// runOnce makes the call, ends the transaction, and tells whether the call noted an expired key, at
// which instant.
func runOnce[T any](
	s *oneShot,
	tx *Tx,
	call func(*verbs) (T, error),
) (result T, now int64, noted bool, err error) {
	defer s.done(tx)
	result, err = call(&tx.verbs)
	return result, tx.nowMs, tx.noted, err
}

// writeOnce is write for calls with a result.
func writeOnce[T any](s *oneShot, call func(*verbs) (T, error)) (T, error) {
	var result, none T
	err := s.write(func(v *verbs) (err error) {
		result, err = call(v)
		return err
	})
	if err != nil {
		return none, err
	}
	return result, nil
}

// Get returns a copy of the value of key, or ErrNotFound. An empty value is not nil.
func (s *oneShot) Get(key []byte) ([]byte, error) {
	return readOnce(s, func(v *verbs) ([]byte, error) {
		value, _, err := v.getCopy(key)
		return value, err
	})
}

// GetTTL returns a copy of the value of key with what TTL says, or ErrNotFound.
func (s *oneShot) GetTTL(key []byte) (value []byte, ttl time.Duration, err error) {
	value, err = readOnce(s, func(v *verbs) (value []byte, err error) {
		value, ttl, err = v.getCopy(key)
		return value, err
	})
	return value, ttl, err
}

// GetAppend appends the value of key to dst and returns the longer slice; on an error, ErrNotFound
// included, dst.
func (s *oneShot) GetAppend(dst, key []byte) ([]byte, error) {
	longer, err := readOnce(s, func(v *verbs) ([]byte, error) { return v.GetAppend(dst, key) })
	if err != nil {
		return dst, err
	}
	return longer, nil
}

// Has says whether key is there.
func (s *oneShot) Has(key []byte) (bool, error) {
	return readOnce(s, func(v *verbs) (bool, error) { return v.Has(key) })
}

// Size returns the length of the value of key in bytes without reading it, or ErrNotFound.
func (s *oneShot) Size(key []byte) (int, error) {
	return readOnce(s, func(v *verbs) (int, error) { return v.Size(key) })
}

// TTL returns what is left of key's life, exact to the millisecond: NoExpiry (-1) if it is
// permanent, 0 if it is expired but still stored, ErrNotFound if it is absent. It changes nothing,
// so that it answers the same when asked again.
func (s *oneShot) TTL(key []byte) (time.Duration, error) {
	return readOnce(s, func(v *verbs) (time.Duration, error) { return v.TTL(key) })
}

// Expiry returns the instant at which key is gone: the zero Time if it is permanent, ErrNotFound if
// it is absent or expired.
func (s *oneShot) Expiry(key []byte) (time.Time, error) {
	return readOnce(s, func(v *verbs) (time.Time, error) { return v.Expiry(key) })
}

// CountLive returns the number of rows that are not expired. It reads no rows: the work does not
// depend on their number.
func (s *oneShot) CountLive() (int64, error) { return readOnce(s, (*verbs).CountLive) }

// NextExpiry returns the earliest expiry in the family; ok is false if no key has one. Rows that
// are expired and still stored count.
func (s *oneShot) NextExpiry() (at time.Time, ok bool, err error) {
	at, err = readOnce(s, func(v *verbs) (at time.Time, err error) {
		at, ok, err = v.NextExpiry()
		return at, err
	})
	return at, ok, err
}

// Count returns the number of stored rows, expired ones included, without reading them.
func (s *oneShot) Count() (int64, error) { return readOnce(s, (*verbs).Count) }

// Put sets key to a copy of value; nil is stored as empty. The key is permanent, or gets the
// family's default ttl.
func (s *oneShot) Put(key, value []byte) error {
	return s.writeRow(operation{kind: opPut, first: key, second: value})
}

// PutTTL is Put with an expiry: ttl from now on, rounded up to a millisecond. ErrInvalidTTL if it
// is not positive, or the expiry is beyond what can be stored.
func (s *oneShot) PutTTL(key, value []byte, ttl time.Duration) error {
	return s.writeRow(operation{kind: opPutTTL, first: key, second: value, when: int64(ttl)})
}

// PutExpireAt is Put with an expiry, rounded up to a millisecond. ErrInvalidTTL if it is not after
// now.
func (s *oneShot) PutExpireAt(key, value []byte, at time.Time) error {
	return s.write(func(v *verbs) error { return v.PutExpireAt(key, value, at) })
}

// Expire gives key a new expiry, ttl from now on, and does not rewrite its value. ErrNotFound if it
// is absent or expired.
func (s *oneShot) Expire(key []byte, ttl time.Duration) error {
	return s.write(func(v *verbs) error { return v.Expire(key, ttl) })
}

// ExpireAt is Expire with an instant, which must be after now.
func (s *oneShot) ExpireAt(key []byte, at time.Time) error {
	return s.write(func(v *verbs) error { return v.ExpireAt(key, at) })
}

// Persist makes key permanent and does not rewrite its value. ErrNotFound if it is absent or
// expired.
func (s *oneShot) Persist(key []byte) error {
	return s.write(func(v *verbs) error { return v.Persist(key) })
}

// PutWith is Put with options, and says whether it wrote: not if a condition did not hold. A loser
// changes nothing.
func (s *oneShot) PutWith(key, value []byte, o PutOptions) (written bool, err error) {
	return writeOnce(s, func(v *verbs) (bool, error) { return v.PutWith(key, value, o) })
}

// Delete removes key. An absent key is nil.
func (s *oneShot) Delete(key []byte) error {
	return s.writeRow(operation{kind: opDelete, first: key})
}

// Increment adds delta to a counter, an 8-byte big-endian two's complement value, and returns the
// sum. A counter that is there keeps its expiry; an absent one counts as 0 and lives for ttlIfNew,
// or, if that is 0, as Put makes it. A value of another size, or an overflow, is ErrNotCounter and
// changes nothing. To read a counter without changing it, Get it and decode the value with
// encoding/binary.
func (s *oneShot) Increment(key []byte, delta int64, ttlIfNew time.Duration) (int64, error) {
	return writeOnce(s, func(v *verbs) (int64, error) { return v.Increment(key, delta, ttlIfNew) })
}

// CompareAndSwap sets key to new as PutWith would if its value is old, and says whether it did. old
// nil means: the key must be absent. The conditions of o may repeat that, not contradict it.
func (s *oneShot) CompareAndSwap(key, old, new []byte, o PutOptions) (swapped bool, err error) {
	return writeOnce(s, func(v *verbs) (bool, error) { return v.CompareAndSwap(key, old, new, o) })
}

// CompareAndDelete removes key if its value is old, and says whether it did. A nil old matches no
// value.
func (s *oneShot) CompareAndDelete(key, old []byte) (deleted bool, err error) {
	return writeOnce(s, func(v *verbs) (bool, error) { return v.CompareAndDelete(key, old) })
}

// DeleteRange removes the keys of [lo, hi). An empty bound does not bound; lo at or above hi
// removes nothing. Subtrees that lie inside are unlinked whole: rows without an expiry cost nothing
// each. An expiry in the range costs a look at its row of the key index; and, unless the range has
// all expiries of the family, or they follow each other without those of other keys between, a
// deletion in the expiry index: some microseconds, and in the log the key and about ten bytes.
func (s *oneShot) DeleteRange(lo, hi []byte) error {
	return s.write(func(v *verbs) error { return v.DeleteRange(lo, hi) })
}

// DeletePrefix removes the keys that begin with p; an empty p is every key. It costs what
// DeleteRange does.
func (s *oneShot) DeletePrefix(p []byte) error {
	return s.write(func(v *verbs) error { return v.DeletePrefix(p) })
}

// Clear removes every key; the work does not depend on their number, nor on expiries.
func (s *oneShot) Clear() error { return s.write((*verbs).Clear) }

// beginRead starts a one-shot read transaction on the family.
func (s *oneShot) beginRead() (*Tx, error) {
	if err := s.db.state(false); err != nil {
		return nil, err
	}
	tx := s.db.pool.Get().(*Tx)
	if err := tx.startRead(true); err != nil {
		s.db.pool.Put(tx)
		return nil, err
	}
	tx.verbs.name = s.name
	return tx, nil
}

// beginWrite starts a one-shot write transaction on the family. begun, unless nil, is called when
// the writer lock is held and the clock not read yet.
func (s *oneShot) beginWrite(ctx context.Context, begun func()) (*Tx, error) {
	tx := s.db.pool.Get().(*Tx)
	if err := tx.start(ctx, true); err != nil {
		s.db.pool.Put(tx)
		return nil, err
	}
	if begun != nil {
		begun()
	}
	tx.instantOrEnd()
	if err := tx.evictBefore(ctx); err != nil {
		s.done(tx)
		return nil, err
	}
	s.db.clock.stamp(tx.inner)
	tx.verbs.name = s.name
	return tx, nil
}

// done ends a one-shot transaction and gives its Tx to the next one: no caller has seen it.
func (s *oneShot) done(tx *Tx) {
	if tx.inner != nil {
		tx.end(ErrTxnDone)
	}
	*tx = Tx{}
	tx.db, tx.verbs.tx = s.db, tx
	s.db.pool.Put(tx)
}
