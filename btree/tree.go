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

// Value is the result of Get. Bytes points into a page or an extent and is valid as long as Reader
// says.
type Value struct {
	Bytes []byte
	Tag   int64 // 0: none
}

// Info is the content of a row without its value. It is zero for a missing key.
type Info struct {
	Size  int   // of the value, bytes
	Tag   int64 // 0: none
	Found bool
}

// ErrOrder is returned by Builder.Add for a key that is not above the one before it.
var ErrOrder = errors.New("btree: keys out of order")

// Errors for keys and values above the limits. Callers check first; here they guard the page
// layout.
var (
	ErrKeyTooLarge   = errors.New("btree: key too large")
	ErrValueTooLarge = errors.New("btree: value too large")
)

// MaxValue is the size in bytes of the largest value.
const MaxValue = 1<<30 - 1

// MaxKey is the size in bytes of the largest key: four of them and their references fit into a
// branch.
func MaxKey(pageSize int) int { return pageSize/4 + 8 }

// MaxInline is the size in bytes of the largest inline value beside a key of that many bytes: the
// leaf's cell of both and a tag, with its head and slot, fits into a page that is at most half full.
// So one split always makes enough space, except in a uniform leaf: see insertOp.retry.
func MaxInline(pageSize, key int) int { return pageSize/2 - 40 - key }

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

// Both page layouts have these fields after the page header.
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

// UsedBytes is the number of payload bytes that cells or children take, without free space and gap.
func UsedBytes(b []byte) int {
	per := leafEntry
	if !isLeaf(b) {
		per = branchEntry
	}
	return count(b)*per + len(b) - lo(b) - gap(b)
}

// usedMerged is used of a page with all entries of a and b, pages of one level.
func usedMerged(a, b []byte) int {
	total := UsedBytes(a) + UsedBytes(b)
	if !isLeaf(a) || bytes.Equal(a[offShape:offShapeZero], b[offShape:offShapeZero]) {
		return total
	}
	for _, leaf := range [2][]byte{a, b} {
		total += (cellHeader - headerIn(leaf)) * count(leaf)
	}
	return total
}

// mergeFraction: a page with less than a quarter used is merged with a neighbour or refilled from
// it. A quarter, not a half: merging at half lets one insert and one delete at the boundary split
// and merge the same two pages for ever.
const mergeFraction = 4

func underfull(b []byte) bool { return UsedBytes(b) < payload(b)/mergeFraction }

// kindWord is the word at offKind, without the count, of a page at level.
func kindWord(level uint8) uint32 {
	if level == 0 {
		return uint32(pager.KindLeaf)
	}
	return uint32(pager.KindBranch) | uint32(level)<<8
}

// misplaced is the error for a page of the wrong kind or level.
func misplaced(ref pager.Ref, b []byte, level uint8) error {
	h := pager.ReadHeader(b)
	kind := pager.KindBranch
	if level == 0 {
		kind = pager.KindLeaf
	}
	return damage(ref, "%v page of level %d where a %v page of level %d belongs",
		h.Kind, h.Level, kind, level)
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
	if w&0xffff != kindWord(level) {
		return nil, 0, misplaced(ref, b, level)
	}
	return b, int(w >> 16), nil
}

// leafAt is pageAt of a leaf that may have a delta.
func leafAt(r Reader, ref pager.Ref) (b []byte, n int, changes []byte, err error) {
	b, changes, err = r.Leaf(ref)
	if err != nil {
		return nil, 0, nil, err
	}
	w := ld32(b, offKind)
	if w&0xffff != kindWord(0) {
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

// summary is the rows field of a branch entry for page b: the rows below, and the overflow bit.
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

// checkedSummary is summary of the page at ref, with an error above maxRows. Only false counts of
// children add up to more, and CheckPage would refuse the page above.
func checkedSummary(ref pager.Ref, b []byte) (uint64, error) {
	s := summary(b)
	if s&^rowsOverflow > maxRows {
		return 0, damage(ref, "its entries count %d rows", s&^rowsOverflow)
	}
	return s, nil
}

// setSummary sets the rows of entry i of branch b, of n children, to the summary of its page cb.
func setSummary(b []byte, n, i int, cb []byte) error {
	s, err := checkedSummary(childRef(b, n, i), cb)
	if err == nil {
		setChildRows(b, n, i, s)
	}
	return err
}

// A pageEditor is the part that all changing operations share. It lives on the stack of the
// operation.
type pageEditor struct {
	w       Writer
	scratch *scratch // allocated on first use, freed by releaseScratch
}

// edit returns an editable page with ref's content. It belongs at level.
func (e *pageEditor) edit(ref pager.Ref, level uint8) (pager.Ref, []byte, error) {
	nref, b, err := e.w.Edit(ref, nil)
	if err != nil {
		return ref, nil, err
	}
	if ld32(b, offKind)&0xffff != kindWord(level) {
		return ref, nil, misplaced(ref, b, level)
	}
	return nref, b, nil
}

// collapse replaces a root branch with a single child by that child.
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
