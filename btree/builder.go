package btree

import (
	"bytes"
	"fmt"

	"github.com/ebbkv/ebb/pager"
)

// A Builder makes a tree bottom-up from rows in ascending order. Pages are full, except the last
// one of each level. The Builder holds one page of memory per level; the Allocator has the others.
// If Add or Finish fails, the rollback of the transaction frees the pages made so far.
type Builder struct {
	pages Allocator
	size  int // of a page
	err   error
	rows  uint64

	buf   []byte   // cells of the current leaf, contiguous, as the page will hold them
	offs  []uint16 // of the cells in buf
	need  leafSize // of these
	over  uint64   // rowsOverflow if one of them has an overflow value
	last  []byte   // key added last; in buf
	spine []branchBuilder
}

// A branchBuilder is the current branch of one level. used counts its payload bytes; seps holds its
// separators.
type branchBuilder struct {
	items []item
	seps  []byte
	used  int
}

// NewBuilder starts a tree.
func NewBuilder(pages Allocator) *Builder {
	size := pages.PageSize()
	return &Builder{pages: pages, size: size, buf: make([]byte, 0, size)}
}

// Add appends a row. It returns ErrOrder if key is not above all earlier keys; the Builder stays
// usable then.
func (b *Builder) Add(key, value []byte, tag int64) error {
	if b.err != nil {
		return b.err
	}
	if len(key) > MaxKey(b.size) {
		return fmt.Errorf("%w: %d bytes, the limit is %d", ErrKeyTooLarge, len(key), MaxKey(b.size))
	}
	if len(value) > MaxValue {
		return fmt.Errorf("%w: %d bytes, the limit is %d", ErrValueTooLarge, len(value), MaxValue)
	}
	if b.rows > 0 && bytes.Compare(b.last, key) >= 0 {
		return ErrOrder
	}
	b.err = b.add(key, value, tag)
	return b.err
}

func (b *Builder) add(key, value []byte, tag int64) (err error) {
	var c cell
	c.set(key, value, tag)
	if len(value) > MaxInline(b.size, len(key)) {
		if c.ref, err = b.pages.NewExtent(value); err != nil {
			return err
		}
		c.info |= infoOverflow
	}
	klen, info := b.need.klen, b.need.info
	if !b.need.add(len(c.key), c.info, b.size) {
		if err := b.flushLeaf(separator(b.last, key)); err != nil {
			return err
		}
		b.need.add(len(c.key), c.info, b.size)
	} else if klen > 0 && !b.need.uniform() {
		b.addHeaders(klen, info)
	}
	if c.info&infoOverflow != 0 {
		b.over = rowsOverflow
	}
	at := len(b.buf)
	b.offs = append(b.offs, uint16(at))
	b.buf = b.buf[:b.need.bytes()]
	if b.need.uniform() {
		c.writeBody(b.buf[at:])
	} else {
		c.writeHeaded(b.buf[at:])
	}
	b.last = b.key(len(b.offs) - 1)
	b.rows++
	return nil
}

// addHeaders gives each cell its own header, because the next cell has a different one. It goes
// from the last cell, which moves farthest, to the first.
func (b *Builder) addHeaders(klen int, info uint32) {
	n := len(b.offs)
	size := len(b.buf) / n
	b.buf = b.buf[:len(b.buf)+n*cellHeader]
	for i := n - 1; i >= 0; i-- {
		was := b.buf[i*size : (i+1)*size]
		at := i * (cellHeader + size)
		copy(b.buf[at+cellHeader:], was)
		putHeader(b.buf[at:], klen, info)
		b.offs[i] = uint16(at)
	}
}

// key returns the key of cell i of the current leaf.
func (b *Builder) key(i int) []byte {
	at := int(b.offs[i])
	if b.need.uniform() {
		return b.buf[at : at+b.need.klen]
	}
	return keyAt(b.buf, withHeader(at))
}

// flushLeaf makes a page of the cells. next is the first separator of the leaf after it.
func (b *Builder) flushLeaf(next []byte) error {
	ref, p, err := b.pages.New(pager.KindLeaf, 0)
	if err != nil {
		return err
	}
	b.writeLeaf(p)
	if len(b.spine) == 0 {
		b.grow(nil)
	}
	if err := b.child(1, ref, b.leafRows()); err != nil {
		return err
	}
	b.buf, b.offs, b.need, b.over = b.buf[:0], b.offs[:0], leafSize{}, 0
	b.separate(1, next)
	return nil
}

// writeLeaf encodes the current leaf into p, whose content after the header is undefined.
func (b *Builder) writeLeaf(p []byte) {
	n, off := len(b.offs), len(p)-len(b.buf)
	shared := shared(b.key(0), b.last)
	b.need.shape(p)
	setLeafFields(p, n, off, shared)
	for i, at := range b.offs {
		setHead(p, i, keyHead32(b.key(i), shared))
		setSlot(p, n, i, off+int(at))
	}
	copy(p[off:], b.buf)
}

// leafRows is summary of the current leaf, without reading its cells.
func (b *Builder) leafRows() uint64 { return uint64(len(b.offs)) | b.over }

// separate adds an item with the separator next to level; child completes the item.
func (b *Builder) separate(level int, next []byte) {
	s := &b.spine[level-1]
	at := len(s.seps)
	s.seps = append(s.seps, next...)
	s.items = append(s.items, item{sep: s.seps[at:len(s.seps):len(s.seps)]})
}

// grow adds a level, whose first separator is empty.
func (b *Builder) grow(first []byte) {
	b.spine = append(b.spine, branchBuilder{seps: make([]byte, 0, b.size+MaxKey(b.size))})
	b.separate(len(b.spine), first)
}

// child completes the last item of level, which has its separator already. If the item does not
// fit, child flushes the page without the last two items, so that the next page has two.
func (b *Builder) child(level int, ref pager.Ref, rows uint64) error {
	s := &b.spine[level-1]
	n := len(s.items)
	it := &s.items[n-1]
	it.ref, it.rows = ref, rows
	cost := branchEntry
	if n > 1 {
		cost += len(it.sep)
	}
	if s.used+cost <= b.size-offHeads {
		s.used += cost
		return nil
	}
	return b.flushBranch(level, n-2)
}

// flushBranch makes a page of the first m items of level and keeps the others.
func (b *Builder) flushBranch(level, m int) error {
	s := &b.spine[level-1]
	ref, p, err := b.pages.New(pager.KindBranch, uint8(level))
	if err != nil {
		return err
	}
	writeBranch(p, s.items[:m])
	if len(b.spine) == level {
		if level+1 >= maxDepth {
			return damage(ref, "the tree would grow deeper than %d levels", maxDepth)
		}
		b.grow(nil)
	}
	if err := b.child(level+1, ref, summary(p)); err != nil {
		return err
	}
	s = &b.spine[level-1] // grow may have moved it
	if m == len(s.items) {
		return nil
	}
	b.separate(level+1, s.items[m].sep)
	n := copy(s.items, s.items[m:])
	s.items = s.items[:n]
	s.seps, s.used = s.seps[:0], 0
	for i := range s.items {
		it := &s.items[i]
		at := len(s.seps)
		s.seps = append(s.seps, it.sep...)
		it.sep = s.seps[at:len(s.seps):len(s.seps)]
		s.used += branchEntry
		if i > 0 {
			s.used += len(it.sep)
		}
	}
	return nil
}

// Finish flushes the pages that are not full and returns the tree. The Builder is unusable then.
func (b *Builder) Finish() (Tree, error) {
	if b.err != nil {
		return Tree{}, b.err
	}
	t, err := b.finish()
	b.err = fmt.Errorf("%w: the builder is finished", ErrOrder)
	return t, err
}

func (b *Builder) finish() (Tree, error) {
	if b.rows == 0 {
		return Tree{}, nil
	}
	ref, p, err := b.pages.New(pager.KindLeaf, 0)
	if err != nil {
		return Tree{}, err
	}
	b.writeLeaf(p)
	if len(b.spine) == 0 {
		return Tree{Root: ref, Depth: 1, Rows: b.rows}, nil
	}
	if err := b.child(1, ref, b.leafRows()); err != nil {
		return Tree{}, err
	}
	for level := 1; ; level++ {
		s := &b.spine[level-1]
		if level == len(b.spine) && len(s.items) == 1 {
			return Tree{Root: s.items[0].ref, Depth: uint8(level), Rows: b.rows}, nil
		}
		if err := b.flushBranch(level, len(s.items)); err != nil {
			return Tree{}, err
		}
	}
}
