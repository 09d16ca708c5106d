package keyspace

import (
	"encoding/binary"
	"iter"
	"math/rand/v2"

	"github.com/ebbkv/ebb/kv"
)

// Keys ranges over the live keys in the order of bytes, from a key on. Key and type are valid until
// the next step.
func (s *Space) Keys(from []byte) iter.Seq2[[]byte, Type] {
	return func(yield func(key []byte, t Type) bool) {
		o := kv.ScanOptions{Lower: append([]byte{'k'}, from...)}
		for key, value := range s.master.Scan(o) {
			if len(value) > 0 && !yield(key[1:], Type(value[0])) {
				return
			}
		}
	}
}

// KeysWithPrefix ranges over the live keys that begin with a prefix, without their values.
func (s *Space) KeysWithPrefix(prefix []byte) iter.Seq[[]byte] {
	return func(yield func(key []byte) bool) {
		o := kv.ScanOptions{Prefix: append([]byte{'k'}, prefix...), KeysOnly: true}
		for key := range s.master.Scan(o) {
			if !yield(key[1:]) {
				return
			}
		}
	}
}

// RandomKey returns a live key, not all with the same probability; ok false if there is none.
func (s *Space) RandomKey() (key []byte, ok bool, err error) {
	c := s.master.Cursor()
	ok = randomRow(c, 1)
	if ok {
		key = append(key, c.Key()[1:]...)
	}
	return key, ok, c.Err()
}

// RandomElement returns a live field of a hash or a member of a set, not all with the same
// probability.
func (s *Space) RandomElement(row *Row) (name, value []byte, ok bool, err error) {
	if row.Type == 0 {
		return nil, nil, false, nil
	}
	kind := byte(memberKind)
	if row.Type == TypeHash {
		kind = fieldKind
	}
	o := kv.ScanOptions{Prefix: append([]byte(nil), s.elementKey(row.ID, kind, nil)...)}
	c := s.elements().CursorIn(o)
	if ok = randomRow(c, elementPrefix); ok {
		name = append([]byte{}, c.Key()[elementPrefix:]...)
		value = append([]byte{}, c.Value()...)
	}
	return name, value, ok, c.Err()
}

// randomRow moves a cursor to a row between its first and its last one: to a random point of the
// interval in which their keys differ, then a random number of rows further. Keys have prefix bytes
// in common.
func randomRow(c *kv.Cursor, prefix int) bool {
	if !c.Last() {
		return false
	}
	last := append([]byte(nil), c.Key()...)
	if !c.First() {
		return false
	}
	first := append([]byte(nil), c.Key()...)
	common := prefix
	for common < min(len(first), len(last)) && first[common] == last[common] {
		common++
	}
	lo, hi := number(first[common:]), number(last[common:])
	target := append([]byte(nil), last[:common]...)
	target = binary.BigEndian.AppendUint64(target, lo+rand.Uint64N(max(hi-lo, 1)))
	if !c.Seek(target) && !c.First() {
		return false
	}
	const furthest = 64
	for range rand.IntN(furthest) {
		if !c.Next() && !c.First() {
			return false
		}
	}
	return true
}

// number returns the first eight bytes of b as a number.
func number(b []byte) uint64 {
	var eight [8]byte
	copy(eight[:], b)
	return binary.BigEndian.Uint64(eight[:])
}
