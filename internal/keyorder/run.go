package keyorder

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/ebbkv/ebb/internal/offheap"
)

// A Run is keys, each with a number of its owner's: the place where it can be found. Places rise.
// The zero value is empty.
type Run struct {
	// keys are the heads of keys above their places: in the order of these numbers, those with
	// different heads are in the order of their keys, and those of one key in that of their places.
	keys   offheap.List[uint64]
	first  []byte // key
	prefix int    // bytes that all keys share with it: heads begin behind
	stale  int    // so many of the first keys have a head that begins further on
	spare  offheap.List[uint64]
}

// Len is the number of keys.
func (r *Run) Len() int { return len(r.keys.All) }

// Add takes a key, of which it keeps the head only; the first one has to stay as it is until Reset.
func (r *Run) Add(key []byte, place uint32) {
	if r.Len() == 0 {
		r.first, r.prefix = key, len(key)
	}
	before := r.prefix
	for r.prefix > len(key) || !bytes.Equal(key[:r.prefix], r.first[:r.prefix]) {
		r.prefix--
	}
	if r.prefix < before {
		r.stale = r.Len()
	}
	r.keys.Add(uint64(head(key[r.prefix:]))<<32 | uint64(place))
}

// Places appends the places of all keys to dst in the order of the keys, those of one key in their
// own order. key returns the key at a place.
func (r *Run) Places(dst *offheap.List[uint32], key func(place uint32) []byte) {
	keys := r.keys.All
	for i, k := range keys[:r.stale] {
		keys[i] = uint64(head(key(uint32(k))[r.prefix:]))<<32 | uint64(uint32(k))
	}
	r.stale = 0
	sortByHead(keys, &r.spare)
	sortEqualHeads(keys, key)
	dst.Room(len(keys))
	for _, k := range keys {
		dst.All = append(dst.All, uint32(k))
	}
}

// Reset empties the run and keeps its memory.
func (r *Run) Reset() { r.keys.All, r.first, r.prefix, r.stale = r.keys.All[:0], nil, 0, 0 }

// sortByHead sorts keys by their upper halves; those that are equal stay in the order in which they
// are, which is that of their lower halves. It puts them into 256 places by each byte of the heads
// in turn, the last one first: half a million take a tenth of the time that comparing them takes.
// spare is memory for that.
func sortByHead(keys []uint64, spare *offheap.List[uint64]) {
	const few = 512 // for which the places cost more
	if len(keys) < few {
		slices.Sort(keys)
		return
	}
	spare.All = spare.All[:0]
	spare.Room(len(keys))
	from, to := keys, spare.All[:len(keys)]
	for shift := 32; shift < 64; shift += 8 {
		var place [256]int
		for _, k := range from {
			place[byte(k>>shift)]++
		}
		begin := 0
		for i, n := range place {
			place[i] = begin
			begin += n
		}
		for _, k := range from {
			at := &place[byte(k>>shift)]
			to[*at] = k
			*at++
		}
		from, to = to, from
	}
}

// sortEqualHeads puts keys whose heads say nothing in the order of all of their bytes, and then of
// their places.
func sortEqualHeads(keys []uint64, key func(place uint32) []byte) {
	for from := 0; from < len(keys); {
		to := from + 1
		for to < len(keys) && keys[to]>>32 == keys[from]>>32 {
			to++
		}
		if to-from > 1 {
			slices.SortStableFunc(
				keys[from:to],
				func(x, y uint64) int { return bytes.Compare(key(uint32(x)), key(uint32(y))) },
			)
		}
		from = to
	}
}

// head is the big-endian value of the first 4 bytes of b, padded with zeros: equal heads do not
// mean equal keys.
func head(b []byte) uint32 {
	if len(b) >= 4 {
		return binary.BigEndian.Uint32(b)
	}
	var h [4]byte
	copy(h[:], b)
	return binary.BigEndian.Uint32(h[:])
}
