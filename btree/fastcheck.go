package btree

import (
	"bytes"
	"encoding/binary"
)

// fastCheck proves of a leaf what the function leaf proves, if its cells are as most are: the value
// in the page, and the key not very short. That takes half the time (-bench CheckPage), which the
// first reads of a large store feel. False says nothing about the page, and leaves the checker as
// it was.
//
// Cells that stand one behind the other in the order of keys, as layLeaf puts them, are taken
// together.
func (c *pageChecker) fastCheck(prefix int) bool {
	b, le, be := c.b, binary.LittleEndian, binary.BigEndian
	maxKey, maxInline := uint64(MaxKey(len(b))), uint32(MaxInline(len(b)))
	least := uint64(max(8, prefix+4)) // length of a key that is looked at here
	// bits of the first 8 bytes of a key that need not be those of the first one
	shift := 64 - 8*uint(min(prefix, 8))
	var first, prev []byte           // keys
	var start uint64                 // of the first key
	var above uint32                 // head of prev
	from, to, taken := c.lo, c.lo, 0 // the cells that are taken together next, and the bytes of all
	heads, slots := b[offLeafHeads:offLeafHeads+4*c.n], b[offLeafHeads+4*c.n:offLeafHeads+leafEntry*c.n]
	klen, info, header := uint64(le.Uint16(b[offShape:])), le.Uint32(b[offShape+2:]), 0
	if klen == 0 {
		header = cellHeader
	}
	if klen|uint64(info) > 0 && !isShape(int(klen), info) {
		return false
	}
	for i := range c.n {
		off := int(le.Uint16(slots[2*i:]))
		if off < c.lo || off > len(b)-cellHeader-8 {
			return c.fallBack()
		}
		if header > 0 {
			klen, info = uint64(le.Uint16(b[off:])), le.Uint32(b[off+2:])
		}
		cell := b[off+header:]
		size := info &^ infoTag // far too large with infoOverflow
		if klen < least || klen > maxKey || size > maxInline {
			return c.fallBack()
		}
		total := int(klen) + tagLen(info) + int(size)
		if total > len(cell) || info&infoTag != 0 && le.Uint64(cell[klen:]) == 0 {
			return c.fallBack()
		}
		key := cell[:klen]
		if i == 0 {
			first, start = key, be.Uint64(key)
		}
		head := be.Uint32(key[prefix:])
		if (be.Uint64(key)^start)>>shift != 0 || prefix > 8 && !hasPrefix(key, first, prefix) ||
			head != le.Uint32(heads[4*i:]) {
			return c.fallBack()
		}
		if i > 0 && head <= above && (head < above || bytes.Compare(prev, key) >= 0) {
			return c.fallBack()
		}
		prev, above = key, head
		if off != to {
			if !c.claim(from, to) {
				return c.fallBack()
			}
			from = off
		}
		to = off + header + total
		taken += header + total
	}
	if !c.claim(from, to) {
		return c.fallBack()
	}
	c.taken = taken
	return true
}

// fallBack leaves the page to the function leaf.
func (c *pageChecker) fallBack() bool {
	clear(c.seen)
	return false
}
