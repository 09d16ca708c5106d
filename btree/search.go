package btree

import (
	"bytes"
	"encoding/binary"
	"math/bits"

	"github.com/ebbkv/ebb/internal/prefetch"
	"github.com/ebbkv/ebb/pager"
)

// keyHead32 is the big-endian value of the 4 bytes of key from prefix on, padded with zeros.
func keyHead32(key []byte, prefix int) uint32 {
	if len(key) >= prefix+4 {
		return binary.BigEndian.Uint32(key[prefix:])
	}
	var h uint32
	for i := prefix; i < prefix+4; i++ {
		h <<= 8
		if i < len(key) {
			h |= uint32(key[i])
		}
	}
	return h
}

// keyHead64 is keyHead32 for the 8 bytes of branches.
func keyHead64(key []byte, prefix int) uint64 {
	if len(key) >= prefix+8 {
		return binary.BigEndian.Uint64(key[prefix:])
	}
	var h uint64
	for i := prefix; i < prefix+8; i++ {
		h <<= 8
		if i < len(key) {
			h |= uint64(key[i])
		}
	}
	return h
}

// lower32 returns the first i in [0, n) whose head is at least h, or n. Three independent loads per
// step leave a quarter. No branch depends on a head, because a misprediction costs more than the
// whole step.
func lower32(b []byte, n int, h uint32) int {
	i := 0
	for n > 3 {
		q := n >> 2
		i += q&below32(b, i+q-1, h) + q&below32(b, i+2*q-1, h) + q&below32(b, i+3*q-1, h)
		n -= 3 * q
	}
	for at := i; n > 0; n-- {
		i -= below32(b, at, h)
		at++
	}
	return i
}

// below32 is -1 if head i is below h, else 0: the borrow of the subtraction.
func below32(b []byte, i int, h uint32) int {
	_, borrow := bits.Sub64(uint64(ld32(b, offLeafHeads+4*i)), uint64(h), 0)
	return -int(borrow)
}

// upper64 returns the first i in [1, n) whose head is above h, or n, in a branch of n children, by
// the method of lower32.
func upper64(b []byte, n int, h uint64) int {
	i := 1
	n--
	for n > 3 {
		q := n >> 2
		i += q&upTo64(b, i+q-1, h) + q&upTo64(b, i+2*q-1, h) + q&upTo64(b, i+3*q-1, h)
		n -= 3 * q
	}
	for at := i; n > 0; n-- {
		i -= upTo64(b, at, h)
		at++
	}
	return i
}

// upTo64 is -1 if head i is at most h, else 0.
func upTo64(b []byte, i int, h uint64) int {
	_, borrow := bits.Sub64(h, ld64(b, offHeads+8*i), 0)
	return int(borrow) - 1
}

// leafFind returns the index and the position of the cell of key in a leaf of n cells; the position
// is not found without such a cell. leafFind skips the prefix of the page: an equal key has it.
func leafFind(b []byte, n int, key []byte) (i int, s cellPos) {
	p := prefix(b)
	if len(key) < p {
		return 0, cellPos{}
	}
	h := keyHead32(key, p)
	i = lower32(b, n, h)
	if i == n || ld32(b, offLeafHeads+4*i) != h {
		return 0, cellPos{}
	}
	if i+1 < n && ld32(b, offLeafHeads+4*i+4) == h {
		i = lowerKey(b, n, i, lower32To(b, n, i, h), key)
		if i == n {
			return 0, cellPos{}
		}
	}
	s = cellPosOf(b, n, i)
	if bytes.Equal(keyAt(b, s), key) {
		return i, s
	}
	return 0, cellPos{}
}

// lower32To returns the end of the run of heads that are equal to h and begin at i.
func lower32To(b []byte, n, i int, h uint32) int {
	lo, hi := i, n
	for lo < hi {
		m := int(uint(lo+hi) >> 1)
		if ld32(b, offLeafHeads+4*m) <= h {
			lo = m + 1
		} else {
			hi = m
		}
	}
	return lo
}

// lowerKey returns the first i in [lo, hi) whose whole key is at least key, or hi.
func lowerKey(b []byte, n, lo, hi int, key []byte) int {
	for lo < hi {
		m := int(uint(lo+hi) >> 1)
		if bytes.Compare(leafKey(b, n, m), key) < 0 {
			lo = m + 1
		} else {
			hi = m
		}
	}
	return lo
}

// leafSearch returns the first i in [0, n) whose key is at least key, or n; whether it is equal;
// and whether key has the prefix of the page.
func leafSearch(b []byte, n int, key []byte) (i int, found, hasPrefix bool) {
	if n == 0 {
		return 0, false, true
	}
	p := prefix(b)
	if len(key) < p {
		if bytes.Compare(key, leafKey(b, n, 0)) > 0 {
			return n, false, false
		}
		return 0, false, false
	}
	h := keyHead32(key, p)
	i = lower32(b, n, h)
	if p > 0 {
		// All keys have the prefix. This key is compared next if its head is equal, and
		// prefetchCell has prefetched it.
		near := leafKey(b, n, min(i, n-1))
		if c := bytes.Compare(key[:p], near[:min(p, len(near))]); c > 0 {
			return n, false, false
		} else if c < 0 {
			return 0, false, false
		}
	}
	if i == n || ld32(b, offLeafHeads+4*i) != h {
		return i, false, true
	}
	end := i + 1
	if end < n && ld32(b, offLeafHeads+4*end) == h {
		end = lower32To(b, n, i, h)
	}
	i = lowerKey(b, n, i, end, key)
	return i, i < end && bytes.Equal(leafKey(b, n, i), key), true
}

// branchSearch returns the child of a branch of n children that may hold key.
func branchSearch(b []byte, n int, key []byte) int {
	p := prefix(b)
	if p > 0 {
		if n < 2 {
			return 0
		}
		first := sep(b, n, 1)
		m := min(p, len(key), len(first))
		if c := bytes.Compare(key[:m], first[:m]); c > 0 {
			return n - 1
		} else if c < 0 || len(key) < p {
			return 0
		}
	}
	h := keyHead64(key, p)
	i := upper64(b, n, h) - 1
	if i > 0 && ld64(b, offHeads+8*i) == h {
		return equalHeads(b, n, i, h, key)
	}
	return i
}

// equalHeads completes branchSearch for a key whose head h equals that of separator i and maybe of
// ones before it.
func equalHeads(b []byte, n, i int, h uint64, key []byte) int {
	// The run of equal heads begins at lo.
	lo, hi := 1, i
	for lo < hi {
		m := int(uint(lo+hi) >> 1)
		if ld64(b, offHeads+8*m) < h {
			lo = m + 1
		} else {
			hi = m
		}
	}
	// The first separator of the run that is above key.
	for hi = i + 1; lo < hi; {
		m := int(uint(lo+hi) >> 1)
		if bytes.Compare(sep(b, n, m), key) <= 0 {
			lo = m + 1
		} else {
			hi = m
		}
	}
	return lo - 1
}

// nearBytes is the number of bytes of a page of that level that a search reads first: the header,
// the heads, and as a rule the slots of a leaf. One prefetch overlaps the misses of these lines; a
// search would wait for each of them.
func nearBytes(level uint8) int {
	if level == 0 {
		return 512
	}
	return 1024
}

// nearChild is nearBytes for child i of branch b at level: the branch has the row count of a leaf.
func nearChild(b []byte, n, i int, level uint8) int {
	most := nearBytes(level)
	if level > 0 {
		return most
	}
	return offLeafHeads + int(min(leafEntry*rowsBelow(b, n, i), uint64(most-offLeafHeads)))
}

// find returns the leaf, or its delta, and the position of the cell of key there, if it exists.
func find(r Reader, t Tree, key []byte) (b []byte, s cellPos, err error) {
	if t.Depth == 0 {
		return nil, cellPos{}, nil
	}
	if err := t.checkDepth(); err != nil {
		return nil, cellPos{}, err
	}
	ref := t.Root
	for level := t.Depth - 1; ; level-- {
		if level == 0 {
			return findIn(r, ref, key, t.Depth > 1)
		}
		b, err := r.Page(ref)
		if err != nil {
			return nil, cellPos{}, err
		}
		if level < t.Depth-1 { // The root is cached as a rule.
			prefetch.Bytes(b[:nearBytes(level)])
		}
		w := ld32(b, offKind)
		n := int(w >> 16)
		if w&0xffff != uint32(pager.KindBranch)|uint32(level)<<8 {
			return nil, cellPos{}, misplaced(ref, b, level)
		}
		ref = childRef(b, n, branchSearch(b, n, key))
	}
}

// findIn is find in the leaf at ref. far says that the leaf is likely not cached.
func findIn(r Reader, ref pager.Ref, key []byte, far bool) (b []byte, s cellPos, err error) {
	b, changes, err := r.Leaf(ref)
	if err != nil {
		return nil, cellPos{}, err
	}
	if far {
		prefetch.Bytes(b[:nearBytes(0)])
	}
	w := ld32(b, offKind)
	if w&0xffff != uint32(pager.KindLeaf) {
		return nil, cellPos{}, misplaced(ref, b, 0)
	}
	b, s = findCell(b, changes, int(w>>16), key)
	return b, s, nil
}

// findCell returns the position of the cell of key, if it exists, and where it is: in leaf b of n
// cells, or in its changes.
func findCell(b, changes []byte, n int, key []byte) ([]byte, cellPos) {
	if changes == nil {
		_, s := leafFind(b, n, key)
		return b, s
	}
	if off := deltaFind(changes, key); off > 0 {
		return changes, withHeader(off)
	}
	i, s := leafFind(b, n, key)
	if !inBase(changes, i) {
		return nil, cellPos{}
	}
	return b, s
}

// Get returns the value of key.
func Get(r Reader, t Tree, key []byte) (Value, bool, error) {
	b, s, err := find(r, t, key)
	if !s.found() || err != nil {
		return Value{}, false, err
	}
	v, err := valueOf(r, b, s)
	return v, err == nil, err
}

func valueOf(r Reader, b []byte, s cellPos) (v Value, err error) {
	info := infoAt(b, s)
	v.Tag = tagAt(b, s)
	if info&infoOverflow == 0 {
		v.Bytes = valueAt(b, s)
		return v, nil
	}
	v.Bytes, err = r.Extent(overflowAt(b, s), int(info&infoSize))
	return v, err
}

// GetInfo returns the Info of a key without reading its value.
func GetInfo(r Reader, t Tree, key []byte) (Info, error) {
	b, s, err := find(r, t, key)
	if !s.found() || err != nil {
		return Info{}, err
	}
	return infoAtCell(b, s), nil
}
