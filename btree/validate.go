package btree

import (
	"bytes"
	"encoding/binary"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/pager"
)

// Page numbers that a page may name: not a meta page, and so low that byte offsets cannot overflow.
// The pager checks whether such a page exists.
const (
	minPgid = 2
	maxPgid = 1 << 44
)

// CheckPage is the border: it verifies that the bytes of one leaf or branch page have the layout of
// leaf.go and branch.go, so that the code behind it may index freely. It runs once for each page,
// at the first read from a file. The error is a *badfile.Error with the page number in the page's
// header.
func CheckPage(b []byte, pageSize int) error {
	if len(b) != pageSize || pageSize < pager.MinPageSize || pageSize > pager.MaxPageSize {
		return badfile.At("", -1, "page of %d bytes where the page size is %d", len(b), pageSize)
	}
	if pageSize == pager.MinPageSize {
		var seen [pager.MinPageSize / 64]uint64
		return checkPage(b, seen[:])
	}
	return checkLargePage(b)
}

// checkLargePage is separate because its array would cost more than the rest of the check of a
// small page.
//
//go:noinline
func checkLargePage(b []byte) error {
	var seen [pager.MaxPageSize / 64]uint64
	return checkPage(b, seen[:])
}

func checkPage(b []byte, seen []uint64) error {
	n := int(binary.LittleEndian.Uint16(b[offCount:]))
	c := pageChecker{b: b, n: n, h: pager.ReadHeader(b), seen: seen}
	return c.page()
}

// A pageChecker verifies one page. It reads with bounds checks only.
type pageChecker struct {
	b     []byte
	n     int
	h     pager.Header
	lo    int
	taken int      // bytes of claimed cells or separators
	seen  []uint64 // one bit for each byte of the page in a claimed cell or separator
}

func (c *pageChecker) bad(format string, args ...any) error {
	return badfile.Page("", uint64(c.h.Pgid), -1, format, args...)
}

func (c *pageChecker) page() error {
	b := c.b
	heads, entry, prefix := offLeafHeads, leafEntry, int(binary.LittleEndian.Uint16(b[offPrefix:]))
	switch c.h.Kind {
	case pager.KindLeaf:
		if c.h.Level != 0 {
			return c.bad("leaf page of level %d", c.h.Level)
		}
	case pager.KindBranch:
		if c.h.Level == 0 || c.h.Level >= maxDepth {
			return c.bad("branch page of level %d", c.h.Level)
		}
		heads, entry = offHeads, branchEntry
	default:
		return c.bad("%v page where a leaf or branch page belongs", c.h.Kind)
	}
	if c.n == 0 {
		return c.bad("%v page with count 0", c.h.Kind)
	}
	c.lo = int(binary.LittleEndian.Uint32(b[offLo:]))
	end := heads + entry*c.n
	if c.lo > len(b) || end > c.lo {
		return c.bad("%d entries end at %d, cells begin at %d, the page ends at %d", c.n, end, c.lo, len(b))
	}
	if !allZero(b[end:c.lo]) {
		return c.bad("bytes between %d and %d are not zero", end, c.lo)
	}
	var err error
	switch {
	case entry == branchEntry:
		err = c.branch(prefix)
	case !allZero(b[offShapeZero:offLeafHeads]):
		err = c.bad("bytes between %d and %d are not zero", offShapeZero, offLeafHeads)
	default:
		err = c.leaf(prefix)
	}
	if err != nil {
		return err
	}
	if g := int(binary.LittleEndian.Uint16(b[offGap:])); g != len(b)-c.lo-c.taken {
		return c.bad("gap is %d, should be %d", g, len(b)-c.lo-c.taken)
	}
	return nil
}

// allZero accepts at most a page.
func allZero(b []byte) bool { return len(b) <= len(zeros) && bytes.Equal(b, zeros[:len(b)]) }

var zeros [pager.MaxPageSize]byte

// take verifies that [off, off+size) lies in [lo, PageSize) and overlaps no earlier range. size is
// not 0.
func (c *pageChecker) take(what string, i, off, size int) error {
	if off < c.lo || off+size > len(c.b) {
		return c.bad("%s %d is [%d, %d), allowed is [%d, %d)", what, i, off, off+size, c.lo, len(c.b))
	}
	if !c.claim(off, off+size) {
		return c.bad("%s %d at %d overlaps another one", what, i, off)
	}
	c.taken += size
	return nil
}

// claim marks the bytes [from, to), and returns false if one of them was marked before.
func (c *pageChecker) claim(from, to int) bool {
	if from == to {
		return true
	}
	first, last := uint(from)/64, uint(to-1)/64
	for w := first; w <= last; w++ {
		mask := ^uint64(0)
		if w == first {
			mask <<= uint(from) % 64
		}
		if w == last {
			mask &= ^uint64(0) >> (63 - uint(to-1)%64)
		}
		if c.seen[w]&mask != 0 {
			return false
		}
		c.seen[w] |= mask
	}
	return true
}

// leaf claims cells that lie side by side in key order, as writeLeaf places them, with one call.
func (c *pageChecker) leaf(prefix int) error {
	b, le := c.b, binary.LittleEndian
	maxKey := MaxKey(len(b))
	klen, info, header := int(le.Uint16(b[offShape:])), le.Uint32(b[offShape+2:]), 0
	switch {
	case klen == 0 && info != 0:
		return c.bad("a shape without a key")
	case klen == 0:
		header = cellHeader
	case !isShape(klen, info):
		return c.bad("no shape has a key of %d bytes and info %#x", klen, info)
	}
	heads, slots := b[offLeafHeads:offLeafHeads+4*c.n], b[offLeafHeads+4*c.n:offLeafHeads+leafEntry*c.n]
	var first, prev []byte
	var above uint32       // head of prev
	from, to := c.lo, c.lo // the cells to claim next
	for i := range c.n {
		off := int(le.Uint16(slots[2*i:]))
		if off < c.lo || off+cellHeader > len(b) { // no body is as short as a header
			return c.bad("slot %d points at %d, cells are in [%d, %d)", i, off, c.lo, len(b))
		}
		if header > 0 {
			klen, info = int(le.Uint16(b[off:])), le.Uint32(b[off+2:])
		}
		if klen > maxKey {
			return c.bad("cell %d has a key of %d bytes, the limit is %d", i, klen, maxKey)
		}
		if most := MaxInline(len(b), klen); (int(info&infoSize) > most) != (info&infoOverflow != 0) {
			return c.bad("cell %d has a value of %d bytes with info %#x, the limit is %d",
				i, info&infoSize, info, most)
		}
		end := off + header + bodySize(klen, info)
		if end > len(b) {
			return c.bad("cell %d is [%d, %d), the page ends at %d", i, off, end, len(b))
		}
		body := b[off+header : end]
		key := body[:klen]
		if info > infoSize {
			if err := c.tagAndExtent(i, info, body[klen:]); err != nil {
				return err
			}
		}
		if i == 0 {
			first = key
		}
		if !hasPrefix(key, first, prefix) {
			return c.bad("key %d lacks the prefix of %d bytes", i, prefix)
		}
		head := keyHead32(key, prefix)
		if h := le.Uint32(heads[4*i:]); h != head {
			return c.bad("head %d is %#x, its key says %#x", i, h, head)
		}
		if i > 0 && head <= above && (head < above || bytes.Compare(prev, key) >= 0) {
			return c.bad("key %d is not above the one before it", i)
		}
		prev, above = key, head
		if off != to {
			if !c.claim(from, to) {
				return c.bad("cell %d, or one before it, overlaps another one", i-1)
			}
			from = off
		}
		to = end
		c.taken += end - off
	}
	if !c.claim(from, to) {
		return c.bad("cell %d, or one before it, overlaps another one", c.n-1)
	}
	return nil
}

// tagAndExtent verifies what follows the key of cell i.
func (c *pageChecker) tagAndExtent(i int, info uint32, rest []byte) error {
	le := binary.LittleEndian
	if info&infoTag != 0 && le.Uint64(rest) == 0 {
		return c.bad("cell %d has the tag 0", i)
	}
	if info&infoOverflow == 0 {
		return nil
	}
	ref := rest[tagLen(info):]
	if id := le.Uint64(ref); id < minPgid || id > maxPgid {
		return c.bad("cell %d has its value at page %d", i, id)
	}
	if epoch := pager.Epoch(le.Uint32(ref[8:])); epoch > c.h.Epoch {
		return c.bad("cell %d has its value at a page of epoch %d, this one is of %d", i, epoch, c.h.Epoch)
	}
	return nil
}

func (c *pageChecker) branch(prefix int) error {
	b, le := c.b, binary.LittleEndian
	maxKey := MaxKey(len(b))
	children := b[offHeads+8*c.n:]
	var first, prev []byte
	var prevHead uint64
	for i := range c.n {
		e := children[childSize*i : childSize*(i+1)]
		if id := le.Uint64(e); id < minPgid || id > maxPgid {
			return c.bad("child %d is page %d", i, id)
		}
		// A child above the base epoch of all readers would look like a page that only memory has.
		if epoch := pager.Epoch(le.Uint32(e[16:])); epoch > c.h.Epoch {
			return c.bad("child %d is of epoch %d, this page is of %d", i, epoch, c.h.Epoch)
		}
		if rows := le.Uint64(e[8:]) &^ rowsOverflow; rows == 0 || rows > maxRows {
			return c.bad("child %d with %d rows", i, rows)
		}
		off, size := int(le.Uint16(e[20:])), int(le.Uint16(e[22:]))
		head := le.Uint64(b[offHeads+8*i:])
		if i == 0 {
			if off != 0 || size != 0 || head != 0 {
				return c.bad("separator 0 is not empty")
			}
			continue
		}
		if size == 0 || size > maxKey {
			return c.bad("separator %d of %d bytes, the limit is %d", i, size, maxKey)
		}
		if err := c.take("separator", i, off, size); err != nil {
			return err
		}
		s := b[off : off+size]
		if i == 1 {
			first = s
		}
		if !hasPrefix(s, first, prefix) {
			return c.bad("separator %d lacks the prefix of %d bytes", i, prefix)
		}
		if h := keyHead64(s, prefix); h != head {
			return c.bad("head %d is %#x, its separator says %#x", i, head, h)
		}
		if i > 1 && (head < prevHead || head == prevHead && bytes.Compare(prev, s) >= 0) {
			return c.bad("separator %d is not above the one before it", i)
		}
		prev, prevHead = s, head
	}
	if c.n == 1 && prefix != 0 {
		return c.bad("prefix of %d bytes without separators", prefix)
	}
	return nil
}
