package btree

import (
	"bytes"
	"encoding/binary"

	"github.com/ebbkv/ebb/pager"
)

// Leaf page, after the page header. Integers are little-endian, heads are the big-endian value of
// the key bytes.
//
//	24     28     30       32         38      40        40+4n     40+6n     lo           PageSize
//	+------+------+--------+----------+-------+---------+---------+-- ... --+-- ... -----+
//	| lo   | gap  | prefix | shape    | zeros | heads   | slots   | zeros   | cells      |
//	| u32  | u16  | u16    | u16, u32 |       | u32 x n | u16 x n |         |            |
//	+------+------+--------+----------+-------+---------+---------+-- ... --+-- ... -----+
//
// lo is the lowest offset that a cell uses, PageSize when there is none. gap counts the bytes of
// [lo, PageSize) that belong to no cell. prefix is the length of a prefix that all keys share (not
// always the longest one; 0 when there is no cell). head i is the 4 bytes of key i after the
// prefix, padded with zeros: equal heads do not mean equal keys. slot i is the offset of cell i:
//
//	+-------+--------+------+----------+-------------------------------------------+
//	| klen  | vinfo  | key  | tag      | value, or pgid u64, epoch u32 of overflow |
//	| u16   | u32    |      | i64 or - |                                           |
//	+-------+--------+------+----------+-------------------------------------------+
//
// vinfo: bits 0-29 size of the value in bytes, bit 30 the value is in an overflow extent, bit 31
// the cell has a tag. A tag is never 0: a cell with tag 0 stores none.
//
// klen and vinfo are the header of a cell. In a uniform leaf all cells have the same header, which
// is in shape, and the cells begin with their keys: a sixteenth more rows of 100 bytes fit. In
// other leaves shape is zero. No shape has a klen of 0, an overflow extent, or cells of fewer than
// minUniform bytes: so the bytes that headers add are bounded, and a leaf and one that is nearly
// empty fit into two leaves when each cell gets its own header.
//
// Invariants, outside the functions of this file:
//
//	(1) keys are strictly increasing;
//	(2) the slots end at or before lo, every cell lies in [lo, PageSize), and no two share a byte;
//	(3) prefix, heads and gap are right, and the bytes between slots and lo are zero.
//
// Golden bytes: testdata/leaf-three-cells.hex, testdata/leaf-uniform.hex.
const (
	offShape     = 32
	offShapeZero = offShape + cellHeader // zeros up to the heads
	offLeafHeads = 40

	cellHeader = 6
	leafEntry  = 4 + 2 // head and slot of a cell
	refSize    = 12    // overflow reference instead of a value

	minUniform = 16

	infoSize     = 1<<30 - 1
	infoOverflow = 1 << 30
	infoTag      = 1 << 31

	tagSize = 8
)

// slot returns the offset of cell i of a leaf of n cells.
func slot(b []byte, n, i int) int { return ld16(b, offLeafHeads+4*n+2*i) }

func setSlot(b []byte, n, i, off int) {
	binary.LittleEndian.PutUint16(b[offLeafHeads+4*n+2*i:], uint16(off))
}

func setHead(b []byte, i int, h uint32) { binary.LittleEndian.PutUint32(b[offLeafHeads+4*i:], h) }

// uniform reports whether the cells of a leaf have a common header.
func uniform(b []byte) bool { return ld16(b, offShape) != 0 }

// headerIn is the size of the header of each cell of the leaf.
func headerIn(b []byte) int {
	if uniform(b) {
		return 0
	}
	return cellHeader
}

// setShape makes an empty leaf uniform, for cells with that header, or for klen 0 not uniform.
func setShape(b []byte, klen int, info uint32) {
	putHeader(b[offShape:], klen, info)
	binary.LittleEndian.PutUint16(b[offShapeZero:], 0)
}

// isShape reports whether a leaf of cells with that header may be uniform.
func isShape(klen int, info uint32) bool {
	return klen > 0 && info&infoOverflow == 0 && bodySize(klen, info) >= minUniform
}

func leafKey(b []byte, n, i int) []byte { return keyAt(b, cellPosOf(b, n, i)) }

func leafHasOverflow(b []byte, n int) bool {
	if uniform(b) {
		return false
	}
	for i := range n {
		if infoAt(b, cellPosOf(b, n, i))&infoOverflow != 0 {
			return true
		}
	}
	return false
}

// initLeaf makes an empty leaf of a page whose payload is zero, for c and cells of its shape.
func initLeaf(b []byte, c *cell) {
	setLo(b, len(b))
	if isShape(len(c.key), c.info) {
		setShape(b, len(c.key), c.info)
	}
}

// leafFree is the number of bytes between the slots and lo.
func leafFree(b []byte) int { return lo(b) - offLeafHeads - leafEntry*count(b) }

// leafInsert adds c, which fits, as cell i. shared says that the key has the page's prefix.
func leafInsert(b []byte, i int, c *cell, shared bool) {
	n := count(b)
	if n == 0 {
		setPrefix(b, len(c.key)) // later inserts shrink it to the common prefix
	}
	off := lo(b) - c.sizeIn(b)
	c.write(b, off)
	// Slots move before heads, the later ones first: heads grow into where the slots were.
	s := offLeafHeads + 4*n
	copy(b[s+6+2*i:], b[s+2*i:s+2*n])
	copy(b[s+4:], b[s:s+2*i])
	copy(b[offLeafHeads+4*i+4:], b[offLeafHeads+4*i:s])
	pager.SetCount(b, n+1)
	setLo(b, off)
	setSlot(b, n+1, i, off)
	if shared || n == 0 {
		setHead(b, i, keyHead32(c.key, prefix(b)))
	} else {
		reprefixLeaf(b)
	}
}

// leafAppend appends rows to a leaf that has some: the longest prefix of changes, at most most
// rows, that is in order above its keys, shares its prefix, has inline values, matches the leaf and
// fits. It returns the number of rows.
func leafAppend(b []byte, changes []Change, most uint64) (n int) {
	have, p := count(b), prefix(b)
	if have == 0 {
		return 0
	}
	last, free := leafKey(b, have, have-1), leafFree(b)
	if len(last) < p {
		return 0 // damaged file
	}
	var c cell
	for n < len(changes) && uint64(n) < most {
		row := &changes[n]
		if !row.inline(len(b)) || len(row.Key) < p || !bytes.Equal(row.Key[:p], last[:p]) ||
			bytes.Compare(last, row.Key) >= 0 {
			break
		}
		c.set(row.Key, row.Value, row.Tag)
		if free -= c.sizeIn(b) + leafEntry; free < 0 || !c.matches(b) {
			break
		}
		last = row.Key
		n++
	}
	if n == 0 {
		return 0
	}
	slots := offLeafHeads + 4*have
	copy(b[slots+4*n:], b[slots:slots+2*have])
	pager.SetCount(b, have+n)
	setLo(b, writeRows(b, have, changes[:n], lo(b), p))
	return n
}

// inline reports whether the change puts a row with an inline value.
func (c *Change) inline(pageSize int) bool {
	return !c.Delete && len(c.Key) <= MaxKey(pageSize) && len(c.Value) <= MaxInline(pageSize, len(c.Key))
}

// writeRows encodes rows, with their heads and slots, behind the first have rows of a leaf, which
// they match and whose count includes them: each below the one before it, the first below off. p is
// the prefix. It returns the new lo.
func writeRows(b []byte, have int, rows []Change, off, p int) int {
	var c cell
	header := headerIn(b)
	for i := range rows {
		c.set(rows[i].Key, rows[i].Value, rows[i].Tag)
		off -= header + bodySize(len(c.key), c.info)
		if header == 0 {
			c.writeBody(b[off:])
		} else {
			c.writeHeaded(b[off:])
		}
		setHead(b, have+i, keyHead32(c.key, p))
		setSlot(b, have+len(rows), have+i, off)
	}
	return off
}

// reprefixLeaf recomputes prefix and heads from the keys.
func reprefixLeaf(b []byte) {
	n := count(b)
	p := shared(leafKey(b, n, 0), leafKey(b, n, n-1))
	setPrefix(b, p)
	for i := range n {
		setHead(b, i, keyHead32(leafKey(b, n, i), p))
	}
}

// leafRemove removes cell i.
func leafRemove(b []byte, i int) {
	n := count(b)
	leafDrop(b, slot(b, n, i))
	s := offLeafHeads + 4*n
	copy(b[offLeafHeads+4*i:], b[offLeafHeads+4*i+4:s])
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

// leafDrop returns the bytes of the cell at off to the free space or to the gap.
func leafDrop(b []byte, off int) {
	size := cellSize(b, off)
	if l := lo(b); off == l {
		clear(b[l : l+size])
		setLo(b, l+size)
	} else {
		setGap(b, gap(b)+size)
	}
}

// leafReplace replaces cell i by c, which has the same key. It returns false if c does not match
// the page, or does not fit without compaction.
func leafReplace(b []byte, i int, c *cell) bool {
	if !c.matches(b) {
		return false
	}
	n := count(b)
	off, size := slot(b, n, i), c.sizeIn(b)
	old := cellSize(b, off)
	if size <= old {
		c.write(b, off)
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
	c.write(b, off)
	setLo(b, off)
	setSlot(b, n, i, off)
	return true
}

// writeLeaf encodes these cells, which lie outside b and are in order, into leaf b without a gap.
// The leaf is uniform if their headers are equal. The cell of the lowest key gets the lowest
// offset, so that a rewritten page never looks like one with ascending inserts: see ascending.
func writeLeaf(b []byte, cells []detachedCell) {
	if sameShape(cells) {
		setShape(b, int(cells[0].klen), cells[0].info)
	} else {
		setShape(b, 0, 0)
	}
	writeCells(b, cells)
}

// writeCells is writeLeaf of cells that match the leaf, which keeps its shape.
func writeCells(b []byte, cells []detachedCell) {
	n, header := len(cells), headerIn(b)
	off, p := len(b)-bodyBytes(cells)-n*header, 0
	if n > 0 {
		p = shared(cells[0].key(), cells[n-1].key())
	}
	setLeafFields(b, n, off, p)
	for i := range cells {
		c := &cells[i]
		setHead(b, i, keyHead32(c.key(), p))
		setSlot(b, n, i, off)
		if header > 0 {
			putHeader(b[off:], int(c.klen), c.info)
		}
		off += header + copy(b[off+header:], c.body)
	}
}

// setLeafFields sets the fields of a leaf of n cells, which begin at off, except its shape.
func setLeafFields(b []byte, n, off, p int) {
	pager.SetCount(b, n)
	setLo(b, off)
	setGap(b, 0)
	setPrefix(b, p)
	clear(b[offLeafHeads+leafEntry*n : off])
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

// hasPrefix reports whether key starts with the first p bytes of other.
func hasPrefix(key, other []byte, p int) bool {
	return len(key) >= p && len(other) >= p && bytes.Equal(key[:p], other[:p])
}
