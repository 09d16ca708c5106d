package kv

import (
	"context"
	"time"
)

// oneShot are the one-shot calls on one family: the common methods of *DB and *Family. Each is the
// method of the same name of Tx in a transaction of its own, with the same arguments and errors. A
// read uses the newest visible snapshot and returns copies. A write has the store's durability, may
// share its transaction with concurrent writes, and waits for other writers without bound.
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

// runOnce runs call and ends the transaction. It returns the instant of the transaction, and whether
// call found an expired key.
func runOnce[T any](
	s *oneShot, tx *Tx, call func(*verbs) (T, error),
) (result T, now int64, noted bool, err error) {
	defer s.done(tx)
	result, err = call(&tx.verbs)
	return result, tx.nowMs, tx.foundExpired, err
}

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

// Get is Tx.Get; it returns a copy of the value.
func (s *oneShot) Get(key []byte) ([]byte, error) {
	return readOnce(s, func(v *verbs) ([]byte, error) {
		value, _, err := v.getCopy(key)
		return value, err
	})
}

// GetTTL is Tx.GetTTL; it returns a copy of the value.
func (s *oneShot) GetTTL(key []byte) (value []byte, ttl time.Duration, err error) {
	value, err = readOnce(s, func(v *verbs) (value []byte, err error) {
		value, ttl, err = v.getCopy(key)
		return value, err
	})
	return value, ttl, err
}

func (s *oneShot) GetAppend(dst, key []byte) ([]byte, error) {
	longer, err := readOnce(s, func(v *verbs) ([]byte, error) { return v.GetAppend(dst, key) })
	if err != nil {
		return dst, err
	}
	return longer, nil
}

func (s *oneShot) Has(key []byte) (bool, error) {
	return readOnce(s, func(v *verbs) (bool, error) { return v.Has(key) })
}

func (s *oneShot) Size(key []byte) (int, error) {
	return readOnce(s, func(v *verbs) (int, error) { return v.Size(key) })
}

func (s *oneShot) TTL(key []byte) (time.Duration, error) {
	return readOnce(s, func(v *verbs) (time.Duration, error) { return v.TTL(key) })
}

func (s *oneShot) Expiry(key []byte) (time.Time, error) {
	return readOnce(s, func(v *verbs) (time.Time, error) { return v.Expiry(key) })
}

func (s *oneShot) CountLive() (int64, error) { return readOnce(s, (*verbs).CountLive) }

func (s *oneShot) NextExpiry() (at time.Time, ok bool, err error) {
	at, err = readOnce(s, func(v *verbs) (at time.Time, err error) {
		at, ok, err = v.NextExpiry()
		return at, err
	})
	return at, ok, err
}

func (s *oneShot) Count() (int64, error) { return readOnce(s, (*verbs).Count) }

func (s *oneShot) CountRange(lo, hi []byte) (int64, error) {
	return readOnce(s, func(v *verbs) (int64, error) { return v.CountRange(lo, hi) })
}

func (s *oneShot) Sequence() (uint64, error) { return readOnce(s, (*verbs).Sequence) }

func (s *oneShot) Put(key, value []byte) error {
	return s.writeRow(operation{kind: opPut, first: key, second: value})
}

func (s *oneShot) PutTTL(key, value []byte, ttl time.Duration) error {
	return s.writeRow(operation{kind: opPutTTL, first: key, second: value, when: int64(ttl)})
}

func (s *oneShot) PutExpireAt(key, value []byte, at time.Time) error {
	return s.write(func(v *verbs) error { return v.PutExpireAt(key, value, at) })
}

func (s *oneShot) Expire(key []byte, ttl time.Duration) error {
	return s.write(func(v *verbs) error { return v.Expire(key, ttl) })
}

func (s *oneShot) ExpireAt(key []byte, at time.Time) error {
	return s.write(func(v *verbs) error { return v.ExpireAt(key, at) })
}

func (s *oneShot) Persist(key []byte) error {
	return s.write(func(v *verbs) error { return v.Persist(key) })
}

func (s *oneShot) PutWith(key, value []byte, o PutOptions) (written bool, err error) {
	return writeOnce(s, func(v *verbs) (bool, error) { return v.PutWith(key, value, o) })
}

func (s *oneShot) Delete(key []byte) error {
	return s.writeRow(operation{kind: opDelete, first: key})
}

func (s *oneShot) Increment(key []byte, delta int64, ttlIfNew time.Duration) (int64, error) {
	return writeOnce(s, func(v *verbs) (int64, error) { return v.Increment(key, delta, ttlIfNew) })
}

func (s *oneShot) GetAndExpire(key []byte, ttl time.Duration) ([]byte, error) {
	return writeOnce(s, func(v *verbs) ([]byte, error) { return v.GetAndExpire(key, ttl) })
}

func (s *oneShot) NextSequence() (uint64, error) { return writeOnce(s, (*verbs).NextSequence) }

func (s *oneShot) SetSequence(last uint64) error {
	return s.write(func(v *verbs) error { return v.SetSequence(last) })
}

func (s *oneShot) CompareAndSwap(key, old, new []byte, o PutOptions) (swapped bool, err error) {
	return writeOnce(s, func(v *verbs) (bool, error) { return v.CompareAndSwap(key, old, new, o) })
}

func (s *oneShot) CompareAndDelete(key, old []byte) (deleted bool, err error) {
	return writeOnce(s, func(v *verbs) (bool, error) { return v.CompareAndDelete(key, old) })
}

func (s *oneShot) DeleteRange(lo, hi []byte) error {
	return s.write(func(v *verbs) error { return v.DeleteRange(lo, hi) })
}

func (s *oneShot) DeletePrefix(p []byte) error {
	return s.write(func(v *verbs) error { return v.DeletePrefix(p) })
}

func (s *oneShot) Clear() error { return s.write((*verbs).Clear) }

// beginRead starts a one-shot read transaction on the family.
func (s *oneShot) beginRead() (*Tx, error) {
	if err := s.db.state(false); err != nil {
		return nil, err
	}
	tx := s.db.pool.Get().(*Tx)
	if err := tx.startRead(time.Time{}); err != nil {
		s.db.pool.Put(tx)
		return nil, err
	}
	tx.verbs.name = s.name
	return tx, nil
}

// beginWrite starts a one-shot write transaction on the family. begun is as for startWrite.
func (s *oneShot) beginWrite(ctx context.Context, begun func()) (*Tx, error) {
	tx := s.db.pool.Get().(*Tx)
	if err := tx.startWrite(ctx, begun); err != nil {
		s.done(tx)
		return nil, err
	}
	tx.verbs.name = s.name
	return tx, nil
}

// done ends a one-shot transaction and returns its Tx to the pool: no caller has seen it.
func (s *oneShot) done(tx *Tx) {
	if tx.expiring.calls > 0 { // Shutdown may know the Tx, and wait for its lock.
		tx.finish(ErrTxnDone)
		return
	}
	if tx.inner != nil {
		tx.end(ErrTxnDone)
	}
	state := tx.txState
	if tx.writable || state.failed != nil {
		*state = txState{}
	}
	*tx = Tx{}
	s.db.pool.Put(tx.init(s.db, state))
}
