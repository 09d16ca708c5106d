package kv

import (
	"fmt"
	"iter"
	"sync"
	"time"
)

// Table is a typed view of a family: the calls of CF of the same names with keys of type K and values
// of type V, which its codecs encode. Each takes the transaction that it is part of; a Table itself is
// safe for concurrent use. Values that it returns belong to the caller.
//
// An error of a codec is returned wrapped, and names family and key. It leaves the transaction as it
// was.
type Table[K, V any] struct {
	cf     string
	keys   Codec[K]
	values Codec[V]
}

// NewTable returns a typed view of the family cf. The family need not exist yet: calls on an absent
// one return ErrCFNotFound.
func NewTable[K, V any](cf string, keys Codec[K], values Codec[V]) Table[K, V] {
	return Table[K, V]{cf: cf, keys: keys, values: values}
}

func (t Table[K, V]) Get(tx *Tx, key K) (value V, err error) {
	err = t.with(tx, key, nil, func(v *verbs, k, _ []byte) error {
		b, err := v.Get(k)
		if err != nil {
			return err
		}
		if value, err = t.values.Decode(b); err != nil {
			return t.codecError("value", k, err)
		}
		return nil
	})
	return value, err
}

func (t Table[K, V]) Has(tx *Tx, key K) (has bool, err error) {
	err = t.with(tx, key, nil, func(v *verbs, k, _ []byte) (err error) {
		has, err = v.Has(k)
		return err
	})
	return has, err
}

func (t Table[K, V]) Put(tx *Tx, key K, value V) error {
	return t.with(tx, key, &value, func(v *verbs, k, b []byte) error { return v.Put(k, b) })
}

func (t Table[K, V]) PutTTL(tx *Tx, key K, value V, ttl time.Duration) error {
	return t.with(tx, key, &value, func(v *verbs, k, b []byte) error { return v.PutTTL(k, b, ttl) })
}

func (t Table[K, V]) Expire(tx *Tx, key K, ttl time.Duration) error {
	return t.with(tx, key, nil, func(v *verbs, k, _ []byte) error { return v.Expire(k, ttl) })
}

func (t Table[K, V]) Delete(tx *Tx, key K) error {
	return t.with(tx, key, nil, func(v *verbs, k, _ []byte) error { return v.Delete(k) })
}

// All is CF.All. An error of a codec, too, ends the range and becomes the transaction's: see Tx.Err.
func (t Table[K, V]) All(tx *Tx) iter.Seq2[K, V] { return t.Prefix(tx, nil) }

// Prefix is All of the rows whose encoded keys begin with p: see PairCodec.Prefix.
func (t Table[K, V]) Prefix(tx *Tx, p []byte) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for k, b := range tx.family(t.cf).Prefix(p) {
			key, err := t.keys.Decode(k)
			if err != nil {
				tx.fail(t.codecError("key", k, err))
				return
			}
			value, err := t.values.Decode(b)
			if err != nil {
				tx.fail(t.codecError("value", k, err))
				return
			}
			if !yield(key, value) {
				return
			}
		}
	}
}

// with encodes a key, and a value unless it is nil, and calls f with both and the family. The bytes
// are f's until it returns.
func (t Table[K, V]) with(tx *Tx, key K, value *V, f func(v *verbs, k, b []byte) error) error {
	mem := tableBufs.Get().(*[]byte)
	defer tableBufs.Put(mem)
	buf, err := t.keys.Append((*mem)[:0], key)
	if err != nil {
		return fmt.Errorf("kv: table %q: encoding a key: %w", t.cf, err)
	}
	n := len(buf)
	if value != nil {
		if buf, err = t.values.Append(buf, *value); err != nil {
			return t.codecError("value", buf[:n], err)
		}
	}
	if cap(buf) <= mostTableBuf {
		*mem = buf
	}
	return f(tx.family(t.cf), buf[:n:n], buf[n:])
}

// tableBufs are buffers for an encoded key and value, of mostTableBuf at most.
var tableBufs = sync.Pool{New: func() any { return new([]byte) }}

const mostTableBuf = 64 << 10

func (t Table[K, V]) codecError(what string, key []byte, err error) error {
	return fmt.Errorf("kv: table %q: %s of key %q: %w", t.cf, what, key, err)
}
