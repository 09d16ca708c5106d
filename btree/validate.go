package btree

import (
	"bytes"
	"encoding/binary"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/pager"
)

// Page numbers that a page may name: not a meta page, and so low that byte offsets cannot overflow.
// That there is such a page is for the pager to say.
const (
	minPgid = 2
	maxPgid = 1 << 44
)

// CheckPage is the border: it proves of the bytes of one leaf or branch page what leaf.go and
// branch.go promise about it, so that everything behind it may index freely. It runs once for each
// page, when it is first read from a file. The error is a *badfile.Error with the page number that
// the page itself names.
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

// checkLargePage is apart because its array would cost more than all the rest of the proof of a
// small page.
//
//go:noinline
func checkLargePage(b []byte) error {
	var seen [pager.MaxPageSize / 64]uint64
	return checkPage(b, seen[:])
}

func checkPage(b []byte, seen []uint64) error {
	c := pageChecker{b: b, n: int(binary.LittleEndian.Uint16(b[offCount:])), h: pager.ReadHeader(b), seen: seen}
	return c.page()
}

// A checker proves one page. It reads with bounds checks only.
type pageChecker struct {
	b     []byte
	n     int
	h     pager.Header
	lo    int
	taken int      // bytes of cells or separators seen
	seen  []uint64 // one bit for each byte of the page that belongs to a cell or separator seen
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
	case c.fastCheck(prefix):
	case binary.LittleEndian.Uint16(b[offShape:]) == 0 && binary.LittleEndian.Uint32(b[offShape+2:]) != 0:
		err = c.bad("a shape without a key")
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

// allZero is for at most a page.
func allZero(b []byte) bool { return len(b) <= len(zeros) && bytes.Equal(b, zeros[:len(b)]) }

var zeros [pager.MaxPageSize]byte

// take proves that [off, off+size) lies in [lo, PageSize) and belongs to nothing seen before. size
// is not 0.
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

// claim takes the bytes [from, to), and says false if one of them was taken before.
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

func (c *pageChecker) leaf(prefix int) error {
	b, le := c.b, binary.LittleEndian
	common := le.Uint16(b[offShape:]) != 0
	if common {
		if klen, info := int(le.Uint16(b[offShape:])), le.Uint32(b[offShape+2:]); !isShape(klen, info) {
			return c.bad("no leaf has cells of %d bytes of key and info %#x alike", klen, info)
		}
	}
	slots := b[offLeafHeads+4*c.n:]
	var first, prev []byte
	var prevHead uint32
	for i := range c.n {
		off := int(le.Uint16(slots[2*i:]))
		if off < c.lo || off+cellHeader > len(b) { // no body is as short as a header
			return c.bad("slot %d points at %d, cells are in [%d, %d)", i, off, c.lo, len(b))
		}
		s := withHeader(off)
		if common {
			s = cellPos{offShape, off}
		}
		key, err := c.cell(i, off, s)
		if err != nil {
			return err
		}
		if i == 0 {
			first = key
		}
		if !hasPrefix(key, first, prefix) {
			return c.bad("key %d lacks the prefix of %d bytes", i, prefix)
		}
		head := keyHead32(key, prefix)
		if h := le.Uint32(b[offLeafHeads+4*i:]); h != head {
			return c.bad("head %d is %#x, its key says %#x", i, h, head)
		}
		if i > 0 && (head < prevHead || head == prevHead && bytes.Compare(prev, key) >= 0) {
			return c.bad("key %d is not above the one before it", i)
		}
		prev, prevHead = key, head
	}
	return nil
}

// cell proves cell i of a leaf, at off, by itself, and returns its key. Its header lies within the
// page.
func (c *pageChecker) cell(i, off int, s cellPos) (key []byte, err error) {
	b, le := c.b, binary.LittleEndian
	klen, info := int(le.Uint16(b[s.header:])), le.Uint32(b[s.header+2:])
	size, maxInline := int(info&infoSize), MaxInline(len(b))
	if klen > MaxKey(len(b)) {
		return nil, c.bad("cell %d has a key of %d bytes, the limit is %d", i, klen, MaxKey(len(b)))
	}
	switch over := info&infoOverflow != 0; {
	case over && size <= maxInline:
		return nil, c.bad(
			"cell %d has a value of %d bytes in an overflow extent, up to %d stand in the page",
			i,
			size,
			maxInline,
		)
	case !over && size > maxInline:
		return nil, c.bad("cell %d has a value of %d bytes in the page, the limit is %d", i, size, maxInline)
	}
	if err := c.take("cell", i, off, s.body-off+bodySize(klen, info)); err != nil {
		return nil, err
	}
	body := b[s.body:]
	if info&infoTag != 0 && le.Uint64(body[klen:]) == 0 {
		return nil, c.bad("cell %d has the tag 0", i)
	}
	if info&infoOverflow != 0 {
		ref := body[klen+tagLen(info):]
		if id := le.Uint64(ref); id < minPgid || id > maxPgid {
			return nil, c.bad("cell %d has its value at page %d", i, id)
		}
		if epoch := pager.Epoch(le.Uint32(ref[8:])); epoch > c.h.Epoch {
			return nil, c.bad("cell %d has its value at a page of epoch %d, this one is of %d", i, epoch, c.h.Epoch)
		}
	}
	return body[:klen], nil
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
		// One that is above the base of all readers would pass for a page that only memory has.
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
