package btree

import (
	"bytes"
	"encoding/binary"
	"errors"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/pager"
)

// Tree names one state of a tree. The zero value is the empty tree.
type Tree struct {
	Root  pager.Ref // zero when empty
	Depth uint8     // number of levels: 0 empty, 1 the root is a leaf
	Rows  uint64
}

// Value is what Get finds. Bytes points into a page or an extent and is valid as long as Reader
// says.
type Value struct {
	Bytes []byte
	Tag   int64 // 0: none
}

// Info is what a leaf tells of a row without touching its value. It is zero for a key that is not
// there.
type Info struct {
	Size  int   // of the value, bytes
	Tag   int64 // 0: none
	Found bool
}

// ErrOrder is returned by Builder.Add for a key that is not above the one before it.
var ErrOrder = errors.New("btree: keys out of order")

// Errors for keys and values above the limits. The rooms above check first; here they guard the
// page layout.
var (
	ErrKeyTooLarge   = errors.New("btree: key too large")
	ErrValueTooLarge = errors.New("btree: value too large")
)

// MaxValue is the size in bytes of the largest value.
const MaxValue = 1<<30 - 1

// MaxKey is the size in bytes of the largest key: four of them and their references fit into a
// branch.
func MaxKey(pageSize int) int { return pageSize/4 + 8 }

// MaxInline is the size in bytes of the largest value that stands in a leaf. A cell of the largest
// key, a tag and the largest inline value, with its head and slot, fits into a page of which at
// most half is taken: one split always makes room, but in a uniform leaf: see putter.retry.
func MaxInline(pageSize int) int { return pageSize/4 - 48 }

// maxDepth bounds every descent. A branch of the largest keys still has four children when it
// splits, so a tree of depth 32 would hold more pages than a file can have.
const maxDepth = 32

// maxRows bounds the rows that a branch entry may claim, so that sums of them never reach bit 63.
const maxRows = 1 << 48

// Offsets in the page header that the searches read: kind, level and count as one 32-bit word.
const (
	offKind  = 20
	offCount = 22
)

// Both page layouts have the same fields behind the page header.
const (
	offLo     = 24
	offGap    = 28
	offPrefix = 30
	offHeads  = 32 // of branches
)

func count(b []byte) int  { return ld16(b, offCount) }
func lo(b []byte) int     { return int(ld32(b, offLo)) }
func gap(b []byte) int    { return ld16(b, offGap) }
func prefix(b []byte) int { return ld16(b, offPrefix) }

func setLo(b []byte, n int)     { binary.LittleEndian.PutUint32(b[offLo:], uint32(n)) }
func setGap(b []byte, n int)    { binary.LittleEndian.PutUint16(b[offGap:], uint16(n)) }
func setPrefix(b []byte, n int) { binary.LittleEndian.PutUint16(b[offPrefix:], uint16(n)) }

// payload is the number of bytes of a page that heads, slots, children, cells and separators share.
func payload(b []byte) int {
	if isLeaf(b) {
		return len(b) - offLeafHeads
	}
	return len(b) - offHeads
}

func isLeaf(b []byte) bool { return b[offKind] == byte(pager.KindLeaf) }

// used is the number of payload bytes that cells or children need, without free space and gap.
func used(b []byte) int {
	per := leafEntry
	if !isLeaf(b) {
		per = branchEntry
	}
	return count(b)*per + len(b) - lo(b) - gap(b)
}

// usedTogether is used of a page with all that a and b have, pages of one level.
func usedTogether(a, b []byte) int {
	total := used(a) + used(b)
	if !isLeaf(a) || bytes.Equal(a[offShape:offShapeZero], b[offShape:offShapeZero]) {
		return total
	}
	for _, leaf := range [2][]byte{a, b} {
		total += (cellHeader - headerIn(leaf)) * count(leaf)
	}
	return total
}

// mergeFraction: a page that is used by less than a quarter is merged with a neighbour or refilled
// from it. A quarter, not a half: merging at half lets one insert and one delete at the boundary
// split and merge the same two pages for ever.
const mergeFraction = 4

func underfull(b []byte) bool { return used(b) < payload(b)/mergeFraction }

// place is the word at offKind, without the count, of a page that belongs at level.
func place(level uint8) uint32 {
	if level == 0 {
		return uint32(pager.KindLeaf)
	}
	return uint32(pager.KindBranch) | uint32(level)<<8
}

// misplaced tells of a page of another kind or level than its place in the tree asks for.
func misplaced(ref pager.Ref, b []byte, level uint8) error {
	h := pager.ReadHeader(b)
	kind := pager.KindBranch
	if level == 0 {
		kind = pager.KindLeaf
	}
	return damage(ref, "%v page of level %d where a %v page of level %d belongs", h.Kind, h.Level, kind, level)
}

func damage(ref pager.Ref, format string, args ...any) error {
	return badfile.Page("", uint64(ref.Pgid), -1, format, args...)
}

// pageAt returns the page at ref, which belongs at level, and its count.
func pageAt(r Reader, ref pager.Ref, level uint8) ([]byte, int, error) {
	b, err := r.Page(ref)
	if err != nil {
		return nil, 0, err
	}
	w := ld32(b, offKind)
	if w&0xffff != place(level) {
		return nil, 0, misplaced(ref, b, level)
	}
	return b, int(w >> 16), nil
}

// leafAt is pageAt of a leaf that may have a patch.
func leafAt(r Reader, ref pager.Ref) (b []byte, n int, changes []byte, err error) {
	b, changes, err = r.Leaf(ref)
	if err != nil {
		return nil, 0, nil, err
	}
	w := ld32(b, offKind)
	if w&0xffff != place(0) {
		return nil, 0, nil, misplaced(ref, b, 0)
	}
	return b, int(w >> 16), changes, nil
}

// checkDepth guards the arrays and the recursion that are bounded by maxDepth.
func (t Tree) checkDepth() error {
	if t.Depth > maxDepth {
		return damage(t.Root, "root of a tree of depth %d, the limit is %d", t.Depth, maxDepth)
	}
	return nil
}

// summary is what a branch entry tells of the page b below it: the rows, and in bit 63 whether
// there is overflow.
func summary(b []byte) uint64 {
	n := count(b)
	if isLeaf(b) {
		if leafHasOverflow(b, n) {
			return uint64(n) | rowsOverflow
		}
		return uint64(n)
	}
	var rows, bit uint64
	for i := range n {
		r := childRows(b, n, i)
		rows += r &^ rowsOverflow
		bit |= r & rowsOverflow
	}
	return rows | bit
}

// summed is summary of the page at ref, unless that is more than an entry can tell: only children
// whose counts are lies come to so many together, and the page above would be refused once it is in
// a file.
func summed(ref pager.Ref, b []byte) (uint64, error) {
	s := summary(b)
	if s&^rowsOverflow > maxRows {
		return 0, damage(ref, "its entries count %d rows", s&^rowsOverflow)
	}
	return s, nil
}

// setSummary makes entry i of branch b, of n children, tell of the page cb below it.
func setSummary(b []byte, n, i int, cb []byte) error {
	s, err := summed(childRef(b, n, i), cb)
	if err == nil {
		setChildRows(b, n, i, s)
	}
	return err
}

// An editor is the part that all changing operations share. It lives on the stack of the operation.
type pageEditor struct {
	w       Writer
	scratch *scratch // taken when first needed, given back by done
}

// edit returns a page that may be changed in place, with ref's content. It belongs at level.
func (e *pageEditor) edit(ref pager.Ref, level uint8) (pager.Ref, []byte, error) {
	nref, b, err := e.w.Edit(ref)
	if err != nil {
		return ref, nil, err
	}
	if ld32(b, offKind)&0xffff != place(level) {
		return ref, nil, misplaced(ref, b, level)
	}
	return nref, b, nil
}

// collapse replaces a root branch that has only one child by that child.
func (e *pageEditor) collapse(t *Tree) error {
	for t.Depth > 1 {
		b, n, err := pageAt(e.w, t.Root, t.Depth-1)
		if err != nil {
			return err
		}
		if n > 1 {
			return nil
		}
		child := childRef(b, n, 0)
		if err := e.w.Free(t.Root); err != nil {
			return err
		}
		t.Root = child
		t.Depth--
	}
	return nil
}
