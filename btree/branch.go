package btree

import (
	"encoding/binary"

	"github.com/ebbkv/ebb/pager"
)

// Branch page, after the page header.
//
//	24        28       30       32             32+8n          32+32n       lo            PageSize
//	+---------+--------+--------+--------------+--------------+--- ... ---+--- ... ------+
//	| lo      | gap    | prefix | heads        | children     | zeros     | separators   |
//	| u32     | u16    | u16    | u64 x n      | 24 B x n     |           |              |
//	+---------+--------+--------+--------------+--------------+--- ... ---+--- ... ------+
//
// lo and gap are as in the leaf. prefix is the length of a prefix that separators 1 to n-1 share.
// head i is the 8 bytes of separator i after the prefix, padded with zeros; head 0 is 0. A child
// is
//
//	+-------+-------+-------+--------+--------+
//	| pgid  | rows  | epoch | sepOff | sepLen |
//	| u64   | u64   | u32   | u16    | u16    |
//	+-------+-------+-------+--------+--------+
//
// rows: bits 0-62 count the rows below the child; bit 63 says that a leaf below it holds an
// overflow reference (the bit may stay set after the last one is deleted). Separator 0 is empty and
// means minus infinity; its sepOff and sepLen are 0. Invariants:
//
//	(1) separators are strictly increasing;
//	(2) they lie in [lo, PageSize), no two share a byte, and prefix, heads and gap are right;
//	(3) separator i <= every key under child i < separator i+1.
//
// CheckPage verifies (1) and (2) from the page alone; (3) needs the tree, see Check. Golden bytes:
// testdata/branch-three-children.hex.
const (
	childSize   = 24
	branchEntry = 8 + childSize // head and child

	rowsOverflow uint64 = 1 << 63
)

// An item is a branch entry outside its page.
type item struct {
	sep  []byte
	ref  pager.Ref
	rows uint64
}

// child returns the offset of child i of a branch of n children.
func child(n, i int) int { return offHeads + 8*n + childSize*i }

func childRef(b []byte, n, i int) pager.Ref {
	c := child(n, i)
	return pager.Ref{Pgid: pager.Pgid(ld64(b, c)), Epoch: pager.Epoch(ld32(b, c+16))}
}

func setChildRef(b []byte, n, i int, ref pager.Ref) {
	c := child(n, i)
	binary.LittleEndian.PutUint64(b[c:], uint64(ref.Pgid))
	binary.LittleEndian.PutUint32(b[c+16:], uint32(ref.Epoch))
}

func childRows(b []byte, n, i int) uint64 { return ld64(b, child(n, i)+8) }

// rowsBelow is childRows without the overflow bit.
func rowsBelow(b []byte, n, i int) uint64 { return childRows(b, n, i) &^ rowsOverflow }

func setChildRows(b []byte, n, i int, rows uint64) {
	binary.LittleEndian.PutUint64(b[child(n, i)+8:], rows)
}

// addRow adds one to the row count of child i. A count that is already at maxRows is damage.
func addRow(b []byte, n, i int) error {
	if rowsBelow(b, n, i) >= maxRows {
		return damage(childRef(b, n, i), "the page above counts %d rows", rowsBelow(b, n, i))
	}
	setChildRows(b, n, i, childRows(b, n, i)+1)
	return nil
}

// subRows subtracts rows from the count of child i, which keeps at least one row. A lower count is
// damage.
func subRows(b []byte, n, i int, rows uint64) error {
	if have := rowsBelow(b, n, i); have <= rows {
		return damage(childRef(b, n, i), "more rows than the %d that the page above counts", have)
	}
	setChildRows(b, n, i, childRows(b, n, i)-rows)
	return nil
}

// sep returns separator i; 0 is empty.
func sep(b []byte, n, i int) []byte {
	c := child(n, i)
	off, size := ld16(b, c+20), ld16(b, c+22)
	return b[off : off+size : off+size]
}

func sepLen(b []byte, n, i int) int { return ld16(b, child(n, i)+22) }

func setSep(b []byte, n, i, off, size int) {
	c := child(n, i)
	binary.LittleEndian.PutUint16(b[c+20:], uint16(off))
	binary.LittleEndian.PutUint16(b[c+22:], uint16(size))
}

func setHead64(b []byte, i int, h uint64) { binary.LittleEndian.PutUint64(b[offHeads+8*i:], h) }

// branchFree is the number of bytes between the children and lo.
func branchFree(b []byte) int { return lo(b) - offHeads - branchEntry*count(b) }

// branchInsert inserts it as entry i > 0. It returns false if the free space is too small.
func branchInsert(b []byte, i int, it item) bool {
	n := count(b)
	if branchFree(b) < branchEntry+len(it.sep) {
		return false
	}
	// Children move before heads, the later ones first: heads grow into where the children were.
	c := child(n, 0)
	copy(b[c+8+childSize*(i+1):], b[c+childSize*i:c+childSize*n])
	copy(b[c+8:], b[c:c+childSize*i])
	copy(b[offHeads+8*i+8:], b[offHeads+8*i:c])
	n++
	pager.SetCount(b, n)
	setChildRef(b, n, i, it.ref)
	setChildRows(b, n, i, it.rows)
	putSep(b, n, i, it.sep, n == 2)
	return true
}

// putSep writes separator i, which fits below lo, and its head. only says that the branch has no
// other separator.
func putSep(b []byte, n, i int, s []byte, only bool) {
	off := lo(b) - len(s)
	copy(b[off:], s)
	setLo(b, off)
	setSep(b, n, i, off, len(s))
	other := 1
	if i == 1 {
		other = 2
	}
	switch p := prefix(b); {
	case only:
		setPrefix(b, len(s))
		setHead64(b, i, 0)
	case hasPrefix(s, sep(b, n, other), p):
		setHead64(b, i, keyHead64(s, p))
	default:
		reprefixBranch(b)
	}
}

// dropSep returns the bytes of separator i to the free space or to the gap.
func dropSep(b []byte, n, i int) {
	c := child(n, i)
	off, size := ld16(b, c+20), ld16(b, c+22)
	if l := lo(b); off == l && size > 0 {
		clear(b[l : l+size])
		setLo(b, l+size)
	} else {
		setGap(b, gap(b)+size)
	}
}

// reprefixBranch recomputes prefix and heads from the separators.
func reprefixBranch(b []byte) {
	n, p := count(b), 0
	if n > 1 {
		p = shared(sep(b, n, 1), sep(b, n, n-1))
	}
	setPrefix(b, p)
	for i := 1; i < n; i++ {
		setHead64(b, i, keyHead64(sep(b, n, i), p))
	}
}

// branchRemove removes entries [i, j). If entry 0 is among them, the first remaining entry loses
// its separator.
func branchRemove(b []byte, i, j int) {
	n := count(b)
	if i == j {
		return
	}
	for k := i; k < j; k++ {
		dropSep(b, n, k)
	}
	if i == 0 && j < n {
		dropSep(b, n, j)
		setSep(b, n, j, 0, 0)
		setHead64(b, j, 0)
	}
	m := n - (j - i)
	c := child(n, 0)
	copy(b[offHeads+8*i:], b[offHeads+8*j:c])
	copy(b[child(m, 0):], b[c:c+childSize*i])
	copy(b[child(m, i):], b[c+childSize*j:c+childSize*n])
	clear(b[child(m, m):child(n, n)])
	pager.SetCount(b, m)
	if m <= 1 { // no separator is left
		clear(b[lo(b):])
		setLo(b, len(b))
		setGap(b, 0)
		setPrefix(b, 0)
	}
}

// writeBranch encodes these entries into b, without a gap. Their separators must lie outside b;
// that of the first entry is not stored.
func writeBranch(b []byte, items []item) {
	n, total, p := len(items), 0, 0
	for _, it := range items[1:] {
		total += len(it.sep)
	}
	if n > 1 {
		p = shared(items[1].sep, items[n-1].sep)
	}
	off := len(b) - total
	pager.SetCount(b, n)
	setLo(b, off)
	setGap(b, 0)
	setPrefix(b, p)
	clear(b[child(n, n):off])
	for i, it := range items {
		setChildRef(b, n, i, it.ref)
		setChildRows(b, n, i, it.rows)
		if i == 0 {
			setHead64(b, 0, 0)
			setSep(b, n, 0, 0, 0)
			continue
		}
		setHead64(b, i, keyHead64(it.sep, p))
		setSep(b, n, i, off, len(it.sep))
		off += copy(b[off:], it.sep)
	}
}

// appendItems appends the entries of a branch to items. Their separators point into b.
func appendItems(items []item, b []byte) []item {
	n := count(b)
	for i := range n {
		items = append(items, item{sep(b, n, i), childRef(b, n, i), childRows(b, n, i)})
	}
	return items
}
