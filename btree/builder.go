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

	cells []detachedCell // of the current leaf
	buf   []byte         // their bodies; it never grows, because a leaf holds them
	need  leafSize       // of these cells
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
	if b.rows > 0 && bytes.Compare(b.last(), key) >= 0 {
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
	if !b.need.add(len(key), c.info, b.size) {
		if err := b.flushLeaf(separator(b.last(), key)); err != nil {
			return err
		}
		b.need.add(len(key), c.info, b.size)
	}
	at := len(b.buf)
	b.buf = b.buf[:at+bodySize(len(key), c.info)]
	c.writeBody(b.buf[at:])
	b.cells = append(b.cells, detachedCell{b.buf[at:], c.info, uint16(len(key))})
	b.rows++
	return nil
}

// last returns the key added last. There is one: a leaf that is flushed gets a cell at once.
func (b *Builder) last() []byte { return b.cells[len(b.cells)-1].key() }

// flushLeaf makes a page of the cells. next is the first separator of the leaf after it.
func (b *Builder) flushLeaf(next []byte) error {
	ref, p, err := b.pages.New(pager.KindLeaf, 0)
	if err != nil {
		return err
	}
	writeLeaf(p, b.cells)
	if len(b.spine) == 0 {
		b.grow(nil)
	}
	if err := b.child(1, ref, summaryOfCells(b.cells)); err != nil {
		return err
	}
	b.separate(1, next)
	b.cells, b.buf, b.need = b.cells[:0], b.buf[:0], leafSize{}
	return nil
}

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
	writeLeaf(p, b.cells)
	if len(b.spine) == 0 {
		return Tree{Root: ref, Depth: 1, Rows: b.rows}, nil
	}
	if err := b.child(1, ref, summaryOfCells(b.cells)); err != nil {
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
