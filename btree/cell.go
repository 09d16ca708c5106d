package btree

import (
	"encoding/binary"

	"github.com/ebbkv/ebb/pager"
)

// The cells of leaves: where they stand, what they hold, and how one is written. How they are
// arranged in a page is for leaf.go.

// A spot is where a cell stands: the offsets of its header and of its body, which is key, tag and
// value.
type cellPos struct{ header, body int }

// cellPosAt is that of the cell at off of leaf b.
func cellPosAt(b []byte, off int) cellPos {
	if uniform(b) {
		return cellPos{offShape, off}
	}
	return withHeader(off)
}

// withHeader is the spot of a cell at off that has a header of its own.
func withHeader(off int) cellPos { return cellPos{off, off + cellHeader} }

// cellPosOf is that of cell i of a leaf of n cells.
func cellPosOf(b []byte, n, i int) cellPos { return cellPosAt(b, slot(b, n, i)) }

// found says that there is a cell.
func (s cellPos) found() bool { return s.body > 0 }

// keyAt returns the key of the cell at s.
func keyAt(b []byte, s cellPos) []byte {
	n := ld16(b, s.header)
	return b[s.body : s.body+n : s.body+n]
}

func infoAt(b []byte, s cellPos) uint32 { return ld32(b, s.header+2) }

// stored is the number of bytes in the place of the value.
func stored(info uint32) int {
	if info&infoOverflow != 0 {
		return refSize
	}
	return int(info & infoSize)
}

// tagLen is the number of bytes of the tag.
func tagLen(info uint32) int { return int(info>>31) * tagSize }

// bodySize is the number of bytes of a cell without its header.
func bodySize(klen int, info uint32) int { return klen + tagLen(info) + stored(info) }

// bodyAt returns the body of the cell at s.
func bodyAt(b []byte, s cellPos) []byte {
	end := s.body + bodySize(ld16(b, s.header), infoAt(b, s))
	return b[s.body:end:end]
}

// cellSize is the size of the cell at off of leaf b, with its header if it has one.
func cellSize(b []byte, off int) int {
	s := cellPosAt(b, off)
	return s.body - off + bodySize(ld16(b, s.header), infoAt(b, s))
}

// tagAt returns the tag of the cell at s, 0 if it has none.
func tagAt(b []byte, s cellPos) int64 {
	if infoAt(b, s)&infoTag == 0 {
		return 0
	}
	return int64(ld64(b, tagOffset(b, s)))
}

// tagOffset is the offset of the tag of the cell at s, which has one.
func tagOffset(b []byte, s cellPos) int { return s.body + ld16(b, s.header) }

// setTagAt changes the tag of the cell at s, which has one, to another.
func setTagAt(b []byte, s cellPos, tag int64) {
	binary.LittleEndian.PutUint64(b[tagOffset(b, s):], uint64(tag))
}

// infoAtCell tells of the cell at s.
func infoAtCell(b []byte, s cellPos) Info {
	return Info{Size: int(infoAt(b, s) & infoSize), Tag: tagAt(b, s), Found: true}
}

// valueOffset is the offset of what stands in the place of the value of the cell at s.
func valueOffset(b []byte, s cellPos) int {
	return s.body + ld16(b, s.header) + tagLen(infoAt(b, s))
}

// valueAt returns the bytes in the place of the value of the cell at s.
func valueAt(b []byte, s cellPos) []byte {
	v, n := valueOffset(b, s), stored(infoAt(b, s))
	return b[v : v+n : v+n]
}

// overflowAt returns the overflow reference of the cell at s, which has one.
func overflowAt(b []byte, s cellPos) pager.Ref {
	v := valueOffset(b, s)
	return pager.Ref{Pgid: pager.Pgid(ld64(b, v)), Epoch: pager.Epoch(ld32(b, v+8))}
}

func setOverflowAt(b []byte, s cellPos, ref pager.Ref) {
	v := valueOffset(b, s)
	binary.LittleEndian.PutUint64(b[v:], uint64(ref.Pgid))
	binary.LittleEndian.PutUint32(b[v+8:], uint32(ref.Epoch))
}

// A cell is a cell that is not in a page yet.
type cell struct {
	key  []byte
	val  []byte    // inline value
	ref  pager.Ref // of the overflow extent, if info says so
	tag  int64     // if info says so
	info uint32
}

// set makes an empty cell that of a row; a value above MaxInline gets its overflow reference later.
func (c *cell) set(key, value []byte, tag int64) {
	c.key, c.val, c.tag, c.info = key, value, tag, uint32(len(value))
	if tag != 0 {
		c.info |= infoTag
	}
}

// size is that of the cell with a header.
func (c *cell) size() int { return cellHeader + bodySize(len(c.key), c.info) }

// sizeIn is that of the cell in leaf b, which it matches.
func (c *cell) sizeIn(b []byte) int { return headerIn(b) + bodySize(len(c.key), c.info) }

// matches says that the cell may stand in leaf b as that is: any does but for uniform ones.
func (c *cell) matches(b []byte) bool {
	return !uniform(b) || len(c.key) == ld16(b, offShape) && c.info == ld32(b, offShape+2)
}

// fits says that the cell matches the leaf, and that there is room for it beside the others.
func (c *cell) fits(b []byte) bool { return c.matches(b) && leafFree(b) >= c.sizeIn(b)+leafEntry }

// write puts the cell at off of leaf b, which it matches.
func (c *cell) write(b []byte, off int) {
	if uniform(b) {
		c.writeBody(b[off:])
	} else {
		c.writeHeaded(b[off:])
	}
}

// putHeader writes the header of a cell to the start of dst.
func putHeader(dst []byte, klen int, info uint32) {
	binary.LittleEndian.PutUint16(dst, uint16(klen))
	binary.LittleEndian.PutUint32(dst[2:], info)
}

// writeHeaded puts the cell with its header at the start of dst.
func (c *cell) writeHeaded(dst []byte) {
	putHeader(dst, len(c.key), c.info)
	c.writeBody(dst[cellHeader:])
}

// writeBody puts the cell without its header at the start of dst.
func (c *cell) writeBody(dst []byte) {
	n := copy(dst, c.key)
	if c.info&infoTag != 0 {
		binary.LittleEndian.PutUint64(dst[n:], uint64(c.tag))
		n += tagSize
	}
	if c.info&infoOverflow != 0 {
		binary.LittleEndian.PutUint64(dst[n:], uint64(c.ref.Pgid))
		binary.LittleEndian.PutUint32(dst[n+8:], uint32(c.ref.Epoch))
	} else {
		copy(dst[n:], c.val)
	}
}
