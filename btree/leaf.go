package btree

import (
	"bytes"
	"encoding/binary"

	"github.com/ebbkv/ebb/pager"
)

// Leaf page, behind the page header. Integers are little-endian, heads are the big-endian value of the key bytes.
//
//	24        28       30       32             32+4n          32+6n        lo            PageSize
//	+---------+--------+--------+--------------+--------------+--- ... ---+--- ... ------+
//	| lo      | gap    | prefix | heads        | slots        | zeros     | cells        |
//	| u32     | u16    | u16    | u32 x n      | u16 x n      |           |              |
//	+---------+--------+--------+--------------+--------------+--- ... ---+--- ... ------+
//
// lo is the lowest offset that a cell uses, PageSize when there is none. gap counts the bytes of [lo, PageSize) that
// belong to no cell. prefix is the length of a prefix that all keys share (not always the longest one; 0 when there is
// no cell). head i is the 4 bytes of key i behind the prefix, padded with zeros: equal heads do not mean equal keys.
// slot i is the offset of cell i:
//
//	+-------+--------+------+----------+-------------------------------------------+
//	| klen  | vinfo  | key  | tag      | value, or pgid u64, epoch u32 of overflow |
//	| u16   | u32    |      | i64 or - |                                           |
//	+-------+--------+------+----------+-------------------------------------------+
//
// vinfo: bits 0-29 size of the value in bytes, bit 30 the value is in an overflow extent, bit 31 there is a tag. A tag
// is not 0: a cell without one has none.
//
// Outside of a function of this file it always holds that:
//
//	(1) keys are strictly increasing;
//	(2) the slots end at or before lo, every cell lies in [lo, PageSize), and no two share a byte;
//	(3) prefix, heads and gap are right, and the bytes between slots and lo are zero.
//
// Golden bytes: testdata/leaf-three-cells.hex.
const (
	cellHeader = 6
	leafEntry  = 4 + 2 // head and slot of a cell
	refSize    = 12    // overflow reference in the place of a value

	infoSize     = 1<<30 - 1
	infoOverflow = 1 << 30
	infoTag      = 1 << 31

	tagSize = 8
)

// slot returns the offset of cell i of a leaf of n cells.
func slot(b []byte, n, i int) int { return ld16(b, offHeads+4*n+2*i) }

func setSlot(b []byte, n, i, off int) {
	binary.LittleEndian.PutUint16(b[offHeads+4*n+2*i:], uint16(off))
}

func setHead(b []byte, i int, h uint32) { binary.LittleEndian.PutUint32(b[offHeads+4*i:], h) }

// keyAt returns the key of the cell at off.
func keyAt(b []byte, off int) []byte {
	k, n := off+cellHeader, ld16(b, off)
	return b[k : k+n : k+n]
}

func infoAt(b []byte, off int) uint32 { return ld32(b, off+2) }

// stored is the number of bytes in the place of the value.
func stored(info uint32) int {
	if info&infoOverflow != 0 {
		return refSize
	}
	return int(info & infoSize)
}

// tagLen is the number of bytes of the tag.
func tagLen(info uint32) int { return int(info>>31) * tagSize }

// cellSize is the size of the cell at off, header and all.
func cellSize(b []byte, off int) int {
	info := infoAt(b, off)
	return cellHeader + ld16(b, off) + tagLen(info) + stored(info)
}

// tagAt returns the tag of the cell at off, 0 if it has none.
func tagAt(b []byte, off int) int64 {
	if infoAt(b, off)&infoTag == 0 {
		return 0
	}
	return int64(ld64(b, off+cellHeader+ld16(b, off)))
}

// setTagAt changes the tag of the cell at off, which has one, to another.
func setTagAt(b []byte, off int, tag int64) {
	binary.LittleEndian.PutUint64(b[off+cellHeader+ld16(b, off):], uint64(tag))
}

// aboutAt tells of the cell at off.
func aboutAt(b []byte, off int) Info {
	return Info{Size: int(infoAt(b, off) & infoSize), Tag: tagAt(b, off), Found: true}
}

// valuePlace is the offset of what stands in the place of the value of the cell at off.
func valuePlace(b []byte, off int) int {
	return off + cellHeader + ld16(b, off) + tagLen(infoAt(b, off))
}

// valueAt returns the bytes in the place of the value of the cell at off.
func valueAt(b []byte, off int) []byte {
	v, n := valuePlace(b, off), stored(infoAt(b, off))
	return b[v : v+n : v+n]
}

// overflowAt returns the overflow reference of the cell at off, which has one.
func overflowAt(b []byte, off int) pager.Ref {
	v := valuePlace(b, off)
	return pager.Ref{Pgid: pager.Pgid(ld64(b, v)), Epoch: pager.Epoch(ld32(b, v+8))}
}

func setOverflowAt(b []byte, off int, ref pager.Ref) {
	v := valuePlace(b, off)
	binary.LittleEndian.PutUint64(b[v:], uint64(ref.Pgid))
	binary.LittleEndian.PutUint32(b[v+8:], uint32(ref.Epoch))
}

func leafKey(b []byte, n, i int) []byte { return keyAt(b, slot(b, n, i)) }

func leafHasOverflow(b []byte, n int) bool {
	for i := range n {
		if infoAt(b, slot(b, n, i))&infoOverflow != 0 {
			return true
		}
	}
	return false
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

func (c *cell) size() int { return cellHeader + len(c.key) + tagLen(c.info) + stored(c.info) }

// write puts the cell at the start of dst.
func (c *cell) write(dst []byte) {
	binary.LittleEndian.PutUint16(dst, uint16(len(c.key)))
	binary.LittleEndian.PutUint32(dst[2:], c.info)
	copy(dst[cellHeader:], c.key)
	if c.info&infoTag != 0 {
		setTagAt(dst, 0, c.tag)
	}
	if c.info&infoOverflow != 0 {
		setOverflowAt(dst, 0, c.ref)
	} else {
		copy(dst[cellHeader+len(c.key)+tagLen(c.info):], c.val)
	}
}

// initLeaf makes an empty leaf of a page whose payload is zero.
func initLeaf(b []byte) { setLo(b, len(b)) }

// leafFree is the number of bytes between the slots and lo.
func leafFree(b []byte) int { return lo(b) - offHeads - leafEntry*count(b) }

// leafInsert adds c as cell i. There is room: leafFree is at least c.size() + leafEntry. shared says that the key has
// the page's prefix.
func leafInsert(b []byte, i int, c *cell, shared bool) {
	n := count(b)
	if n == 0 {
		setPrefix(b, len(c.key)) // shrinks to what the keys really share as they come
	}
	off := lo(b) - c.size()
	c.write(b[off:])
	// Slots move before heads, the later ones first: heads grow into where the slots were.
	s := offHeads + 4*n
	copy(b[s+6+2*i:], b[s+2*i:s+2*n])
	copy(b[s+4:], b[s:s+2*i])
	copy(b[offHeads+4*i+4:], b[offHeads+4*i:s])
	pager.SetCount(b, n+1)
	setLo(b, off)
	setSlot(b, n+1, i, off)
	if shared || n == 0 {
		setHead(b, i, head32(c.key, prefix(b)))
	} else {
		reprefixLeaf(b)
	}
}

// leafAppend adds rows behind those of a leaf that has some: as many of the changes, no more than most, as come in order behind its keys, share
// its prefix, have their values inline, and have room. It says how many.
func leafAppend(b []byte, changes []Change, most uint64) (n int) {
	have, p := count(b), prefix(b)
	if have == 0 {
		return 0
	}
	last, free := leafKey(b, have, have-1), leafFree(b)
	if len(last) < p {
		return 0 // of a damaged file
	}
	var c cell
	for n < len(changes) && uint64(n) < most {
		row := &changes[n]
		if !row.inline(len(b)) || len(row.Key) < p || !bytes.Equal(row.Key[:p], last[:p]) || bytes.Compare(last, row.Key) >= 0 {
			break
		}
		c.set(row.Key, row.Value, row.Tag)
		if free -= c.size() + leafEntry; free < 0 {
			break
		}
		last = row.Key
		n++
	}
	if n == 0 {
		return 0
	}
	slots := offHeads + 4*have
	copy(b[slots+4*n:], b[slots:slots+2*have])
	pager.SetCount(b, have+n)
	setLo(b, layRows(b, have, changes[:n], lo(b), p))
	return n
}

// inline says that it puts a row that stands in a leaf, value and all.
func (c *Change) inline(pageSize int) bool {
	return !c.Delete && len(c.Key) <= MaxKey(pageSize) && len(c.Value) <= MaxInline(pageSize)
}

// layRows writes rows, with their heads and slots, behind those of a leaf that has so many, and whose count is that of all: each below the one before it, the first
// below off. p is the prefix. It returns the new lo.
func layRows(b []byte, have int, rows []Change, off, p int) int {
	var c cell
	for i := range rows {
		c.set(rows[i].Key, rows[i].Value, rows[i].Tag)
		off -= c.size()
		c.write(b[off:])
		setHead(b, have+i, head32(c.key, p))
		setSlot(b, have+len(rows), have+i, off)
	}
	return off
}

// reprefixLeaf sets prefix and heads from the keys.
func reprefixLeaf(b []byte) {
	n := count(b)
	p := shared(leafKey(b, n, 0), leafKey(b, n, n-1))
	setPrefix(b, p)
	for i := range n {
		setHead(b, i, head32(leafKey(b, n, i), p))
	}
}

// leafRemove takes cell i out.
func leafRemove(b []byte, i int) {
	n := count(b)
	leafDrop(b, slot(b, n, i))
	s := offHeads + 4*n
	copy(b[offHeads+4*i:], b[offHeads+4*i+4:s])
	copy(b[s-4:], b[s:s+2*i])
	copy(b[s-4+2*i:], b[s+2*i+2:s+2*n])
	clear(b[s+2*n-leafEntry : s+2*n])
	pager.SetCount(b, n-1)
	if n == 1 {
		clear(b[lo(b):])
		setLo(b, len(b))
		setGap(b, 0)
		setPrefix(b, 0)
	}
}

// leafDrop gives the bytes of the cell at off back to the free space or to the gap.
func leafDrop(b []byte, off int) {
	size := cellSize(b, off)
	if l := lo(b); off == l {
		clear(b[l : l+size])
		setLo(b, l+size)
	} else {
		setGap(b, gap(b)+size)
	}
}

// leafReplace puts c in the place of cell i, which has the same key, and says false if the page is too small as it is.
func leafReplace(b []byte, i int, c *cell) bool {
	n := count(b)
	off, size := slot(b, n, i), c.size()
	old := cellSize(b, off)
	if size <= old {
		c.write(b[off:])
		setGap(b, gap(b)+old-size)
		return true
	}
	free := leafFree(b)
	if off == lo(b) {
		free += old
	}
	if free < size {
		return false
	}
	leafDrop(b, off)
	off = lo(b) - size
	c.write(b[off:])
	setLo(b, off)
	setSlot(b, n, i, off)
	return true
}

// layLeaf makes b a leaf of these cells, which are whole cells in order and outside of b, without a gap. The cell of
// the lowest key gets the lowest offset. So a page that was laid out never looks like one that keys were added to in
// ascending order: see ascending.
func layLeaf(b []byte, cells [][]byte) {
	n, total := len(cells), 0
	for _, c := range cells {
		total += len(c)
	}
	off := len(b) - total
	p := 0
	if n > 0 {
		p = shared(keyAt(cells[0], 0), keyAt(cells[n-1], 0))
	}
	frameLeaf(b, n, off, p)
	for i, c := range cells {
		setHead(b, i, head32(keyAt(c, 0), p))
		setSlot(b, n, i, off)
		off += copy(b[off:], c)
	}
}

// layPacked is layLeaf for cells, one at least, that stand one behind the other in packed: cell i at offs[i].
func layPacked(b, packed []byte, offs []uint16) {
	n, off := len(offs), len(b)-len(packed)
	p := shared(keyAt(packed, int(offs[0])), keyAt(packed, int(offs[n-1])))
	frameLeaf(b, n, off, p)
	for i, at := range offs {
		setHead(b, i, head32(keyAt(packed, int(at)), p))
		setSlot(b, n, i, off+int(at))
	}
	copy(b[off:], packed)
}

// frameLeaf sets what a leaf of n cells has besides heads, slots and the cells, which begin at off.
func frameLeaf(b []byte, n, off, p int) {
	pager.SetCount(b, n)
	setLo(b, off)
	setGap(b, 0)
	setPrefix(b, p)
	clear(b[offHeads+leafEntry*n : off])
}

// appendCells appends cells [i, j) of a leaf to cells. They point into b.
func appendCells(cells [][]byte, b []byte, i, j int) [][]byte {
	n := count(b)
	for ; i < j; i++ {
		off := slot(b, n, i)
		size := cellSize(b, off)
		cells = append(cells, b[off:off+size:off+size])
	}
	return cells
}

// shared is the length of the longest common prefix.
func shared(a, b []byte) int {
	n := min(len(a), len(b))
	i := 0
	for ; i+8 <= n; i += 8 {
		if binary.LittleEndian.Uint64(a[i:]) != binary.LittleEndian.Uint64(b[i:]) {
			break
		}
	}
	for i < n && a[i] == b[i] {
		i++
	}
	return i
}

// separator returns the shortest prefix of right that is above left, which is below right.
func separator(left, right []byte) []byte {
	n := min(shared(left, right)+1, len(right))
	return right[:n:n]
}

// hasPrefix says that key starts with the first p bytes of other.
func hasPrefix(key, other []byte, p int) bool {
	return len(key) >= p && len(other) >= p && bytes.Equal(key[:p], other[:p])
}
