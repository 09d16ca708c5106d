package btree

import (
	"encoding/binary"

	"github.com/ebbkv/ebb/pager"
)

// The cells of leaves: position, content and encoding. leaf.go arranges them in a page.

// A cellPos is the position of a cell: the offsets of its header and of its body, which is key, tag
// and value.
type cellPos struct{ header, body int }

// cellPosAt returns the position of the cell at off of leaf b.
func cellPosAt(b []byte, off int) cellPos {
	if uniform(b) {
		return cellPos{offShape, off}
	}
	return withHeader(off)
}

// withHeader returns the position of a cell at off that has its own header.
func withHeader(off int) cellPos { return cellPos{off, off + cellHeader} }

// cellPosOf returns the position of cell i of a leaf of n cells.
func cellPosOf(b []byte, n, i int) cellPos { return cellPosAt(b, slot(b, n, i)) }

func (s cellPos) found() bool { return s.body > 0 }

func keyAt(b []byte, s cellPos) []byte {
	n := ld16(b, s.header)
	return b[s.body : s.body+n : s.body+n]
}

func infoAt(b []byte, s cellPos) uint32 { return ld32(b, s.header+2) }

// stored is the size in bytes of the stored value or overflow reference.
func stored(info uint32) int {
	if info&infoOverflow != 0 {
		return refSize
	}
	return int(info & infoSize)
}

func tagLen(info uint32) int { return int(info>>31) * tagSize }

// bodySize is the size in bytes of a cell without its header.
func bodySize(klen int, info uint32) int { return klen + tagLen(info) + stored(info) }

func bodyAt(b []byte, s cellPos) []byte {
	end := s.body + bodySize(ld16(b, s.header), infoAt(b, s))
	return b[s.body:end:end]
}

// cellSize is the size of the cell at off of leaf b, with its own header if it has one.
func cellSize(b []byte, off int) int {
	s := cellPosAt(b, off)
	return s.body - off + bodySize(ld16(b, s.header), infoAt(b, s))
}

func tagAt(b []byte, s cellPos) int64 {
	if infoAt(b, s)&infoTag == 0 {
		return 0
	}
	return int64(ld64(b, tagOffset(b, s)))
}

// tagOffset is the offset of the tag of the cell at s, which has one.
func tagOffset(b []byte, s cellPos) int { return s.body + ld16(b, s.header) }

// setTagAt overwrites the tag of the cell at s, which has one.
func setTagAt(b []byte, s cellPos, tag int64) {
	binary.LittleEndian.PutUint64(b[tagOffset(b, s):], uint64(tag))
}

func infoAtCell(b []byte, s cellPos) Info {
	return Info{Size: int(infoAt(b, s) & infoSize), Tag: tagAt(b, s), Found: true}
}

// valueOffset is the offset of the stored value or overflow reference of the cell at s.
func valueOffset(b []byte, s cellPos) int {
	return s.body + ld16(b, s.header) + tagLen(infoAt(b, s))
}

// valueAt returns the stored value or overflow reference of the cell at s.
func valueAt(b []byte, s cellPos) []byte {
	v, n := valueOffset(b, s), stored(infoAt(b, s))
	return b[v : v+n : v+n]
}

// overflowAt returns the overflow reference of the cell at s, which has one.
func overflowAt(b []byte, s cellPos) pager.Ref {
	v := valueOffset(b, s)
	return pager.Ref{Pgid: pager.Pgid(ld64(b, v)), Epoch: pager.Epoch(ld32(b, v+8))}
}

// overflowCells visits the cells of a leaf with overflow values: their indexes, and the references to
// the values and their sizes.
func overflowCells(b []byte, n int, visit func(i int, ref pager.Ref, size int) error) error {
	for i := range n {
		s := cellPosOf(b, n, i)
		if info := infoAt(b, s); info&infoOverflow != 0 {
			if err := visit(i, overflowAt(b, s), int(info&infoSize)); err != nil {
				return err
			}
		}
	}
	return nil
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
	ref  pager.Ref // of the overflow extent, if info has infoOverflow
	tag  int64     // if info has infoTag
	info uint32
}

// set fills an empty cell with a row. The caller sets the reference of a value above MaxInline.
func (c *cell) set(key, value []byte, tag int64) {
	c.key, c.val, c.tag, c.info = key, value, tag, uint32(len(value))
	if tag != 0 {
		c.info |= infoTag
	}
}

// size is the size of the cell with its own header.
func (c *cell) size() int { return cellHeader + bodySize(len(c.key), c.info) }

// sizeIn is the size of the cell in leaf b, which it matches.
func (c *cell) sizeIn(b []byte) int { return headerIn(b) + bodySize(len(c.key), c.info) }

// matches reports whether leaf b can hold the cell in its present shape. A leaf that is not uniform
// can hold any cell.
func (c *cell) matches(b []byte) bool {
	return !uniform(b) || len(c.key) == ld16(b, offShape) && c.info == ld32(b, offShape+2)
}

// fits reports whether the cell matches the leaf and fits into its free space.
func (c *cell) fits(b []byte) bool { return c.matches(b) && leafFree(b) >= c.sizeIn(b)+leafEntry }

// write encodes the cell at off of leaf b, which it matches.
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

// writeHeaded encodes the cell with its header at the start of dst.
func (c *cell) writeHeaded(dst []byte) {
	putHeader(dst, len(c.key), c.info)
	c.writeBody(dst[cellHeader:])
}

// writeBody encodes the cell without its header at the start of dst.
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

// A detachedCell is a cell that moves between pages. It points into its old page, or a copy of it.
type detachedCell struct {
	body []byte // key, tag and value
	info uint32
	klen uint16
}

func detach(b []byte, s cellPos) detachedCell {
	return detachedCell{body: bodyAt(b, s), info: infoAt(b, s), klen: uint16(ld16(b, s.header))}
}

func (c *detachedCell) key() []byte { return c.body[:c.klen:c.klen] }

func (c *detachedCell) appendHeaded(b []byte) []byte {
	n := len(b)
	b = append(b, make([]byte, cellHeader)...)
	putHeader(b[n:], int(c.klen), c.info)
	return append(b, c.body...)
}

// appendCells appends cells [i, j) of a leaf to cells. They point into b.
func appendCells(cells []detachedCell, b []byte, i, j int) []detachedCell {
	n := count(b)
	for ; i < j; i++ {
		cells = append(cells, detach(b, cellPosOf(b, n, i)))
	}
	return cells
}

// sameShape reports whether a leaf of these cells is uniform.
func sameShape(cells []detachedCell) bool {
	if len(cells) == 0 || !isShape(int(cells[0].klen), cells[0].info) {
		return false
	}
	for i := range cells {
		if cells[i].klen != cells[0].klen || cells[i].info != cells[0].info {
			return false
		}
	}
	return true
}

func bodyBytes(cells []detachedCell) (size int) {
	for i := range cells {
		size += len(cells[i].body)
	}
	return size
}

// cellOverhead is the number of bytes that each of the cells takes of a leaf besides its body. It
// is an upper bound if the cells are divided among several leaves.
func cellOverhead(cells []detachedCell) int {
	if sameShape(cells) {
		return leafEntry
	}
	return leafEntry + cellHeader
}

// cellsSize is the number of payload bytes that the cells take in one leaf.
func cellsSize(cells []detachedCell) int { return bodyBytes(cells) + len(cells)*cellOverhead(cells) }

// summaryOfCells is summary of a leaf of these cells.
func summaryOfCells(cells []detachedCell) uint64 {
	for i := range cells {
		if cells[i].info&infoOverflow != 0 {
			return uint64(len(cells)) | rowsOverflow
		}
	}
	return uint64(len(cells))
}

// splitCells returns how many of the cells go to the left of two pages, so that both hold about the
// same number of bytes. Each page gets at least one. 0: the cells do not fit into two pages. Only
// the cells of two pages and one more can be that many.
func splitCells(cells []detachedCell, limit int) int {
	total, per := cellsSize(cells), cellOverhead(cells)
	m, left := 0, 0
	for m < len(cells) && 2*left < total {
		left += per + len(cells[m].body)
		m++
	}
	// left is now at or above half, and before its last cell it was below.
	before := left - per - len(cells[m-1].body)
	fits := m < len(cells) && left <= limit && total-left <= limit
	if m > 1 && before <= limit && total-before <= limit && (!fits || total-2*before < 2*left-total) {
		return m - 1
	}
	if !fits {
		return 0
	}
	return m
}
