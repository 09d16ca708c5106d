package btree

import (
	"bytes"
	"slices"

	"github.com/ebbkv/ebb/pager"
)

// Parts are a tree that was cut into ranges of keys, each a tree of its own, so that several goroutines change a part each. What is cut are
// the branches at one level, the root's as a rule, between two of their children: what is above is left out, and nothing changes it meanwhile. No page is on
// the way to keys of two parts. Join makes one tree of them again.
//
// The branches that are cut, and those above, stay where they are until then: what the parts have in their place is born with them.
type Parts struct {
	level uint8 // of the branches that were cut
	n     int
	of    [MaxParts]Tree
	from  [MaxParts]int // the entry that a part begins with

	seps  [MaxParts][]byte // where the parts begin; in pages that were cut
	heads [MaxParts]uint64 // of these

	was, will entries // of the branches that are cut, and of those that come into their place
}

// MaxParts is how many parts a tree is cut into: four for each who may change it in place.
const MaxParts = 4 * pager.MaxKeepers

// cutSample is how many changes are looked at for where to cut, for each part that there may be.
const cutSample = 16

// cutLevels is how many levels of branches are tried, from the root down: one with few children may lead most of the changes to one of them.
const cutLevels = 2

// mostCut is how many branches are cut at most. There are so few where a root leads to so few that it cannot be cut well.
const mostCut = 32

// Cut cuts t into most parts at most, so that about as many of the changes come to each. n is how many parts there are. It is 1, and nothing has happened,
// if the tree is too small, or the keys lie so close together that more than half of them, and a little, would come to one part, as far as a
// look at some of them shows.
func (p *Parts) Cut(w Writer, t Tree, changes []Change, most int) (n int, err error) {
	most = min(most, MaxParts)
	if t.Depth < 2 || t.Depth >= maxDepth || most < 2 {
		return 1, t.checkDepth()
	}
	// A look at a branch or two before all of those that may be cut: rows in order come to one page below them.
	first, below := changes[0].Key, max(t.Depth, cutLevels+1)-cutLevels-1
	if together(w, t, first, changes[len(changes)/2].Key, below) && together(w, t, first, changes[len(changes)-1].Key, below) {
		return 1, nil
	}
	for level := t.Depth - 1; level > 0 && t.Depth-level <= cutLevels; level-- {
		if level < t.Depth-1 && len(p.was.items) > mostCut {
			break
		}
		p.level = level
		p.was.forget()
		if err := p.was.below(w, level, t.Root, t.Depth-1, nil); err != nil {
			return 1, err
		}
		if p.choose(changes, most) {
			return p.cut(w)
		}
	}
	p.was.forget()
	return 1, nil
}

// cut makes the parts of what was chosen.
func (p *Parts) cut(w Writer) (n int, err error) {
	for i := range p.n {
		own := p.was.items[p.from[i]:]
		if i+1 < p.n {
			own = own[:p.from[i+1]-p.from[i]]
		}
		p.seps[i] = own[0].sep
		p.heads[i] = head64(p.seps[i], 0)
		if p.of[i], err = build(w, p.level, own); err != nil {
			return 1, err
		}
	}
	return p.n, nil
}

// choose says which entry each part begins with, if that is worth it.
func (p *Parts) choose(changes []Change, most int) bool {
	items := p.was.items
	step := len(changes)/(cutSample*most) | 1 // odd: every other change may be in another place
	var buf [2 * cutSample * MaxParts]int
	at := buf[:0] // the entries that the sample belongs to
	for i := 0; i < len(changes) && len(at) < cap(at); i += step {
		at = append(at, itemOf(items, changes[i].Key))
	}
	slices.Sort(at)
	share, half, begin := len(at)/most, len(at)*5/8, 0
	p.n, p.from[0] = 1, 0
	for i := 1; i < most; i++ {
		// The boundary of entries that is nearest to the end of i shares.
		k := i * len(at) / most
		lo, _ := slices.BinarySearch(at, at[k])
		hi, _ := slices.BinarySearch(at, at[k]+1)
		first := at[k]
		if k-lo > hi-k {
			first, lo = first+1, hi
		}
		if first <= p.from[p.n-1] || first >= len(items) || lo-begin < share/2 {
			continue
		}
		if lo-begin > half {
			return false
		}
		p.from[p.n], begin = first, lo
		p.n++
	}
	return p.n > 1 && len(at)-begin <= half
}

// itemOf is the entry that key belongs to, of those of branches from the left end of a tree on.
func itemOf(items []item, key []byte) int {
	lo, hi := 1, len(items)
	for lo < hi {
		m := int(uint(lo+hi) >> 1)
		if bytes.Compare(items[m].sep, key) <= 0 {
			lo = m + 1
		} else {
			hi = m
		}
	}
	return lo - 1
}

// Tree is the i-th part.
func (p *Parts) Tree(i int) *Tree { return &p.of[i] }

// Of is the part that key belongs to.
func (p *Parts) Of(key []byte) int {
	h, i := head64(key, 0), 1
	for i < p.n && (p.heads[i] < h || p.heads[i] == h && bytes.Compare(p.seps[i], key) <= 0) {
		i++
	}
	return i - 1
}

// Join makes t of the parts. All that was born in them is w's now.
func (p *Parts) Join(w Writer, t *Tree) error {
	defer p.Forget()
	for i := range p.n {
		if err := p.will.part(w, p.level, p.of[i], p.seps[i]); err != nil {
			return err
		}
	}
	joined := Tree{}
	if len(p.will.items) > 0 {
		var err error
		if joined, err = build(w, p.level, p.will.items); err != nil {
			return err
		}
	}
	for _, gone := range [2][]pager.Ref{p.was.pages, p.will.pages} {
		for _, ref := range gone {
			if err := w.Free(ref); err != nil {
				return err
			}
		}
	}
	e := editor{w: w}
	*t = joined
	return e.collapse(t)
}

// Forget is for parts that will not be joined. Pointers into pages are wiped: their memory may be gone tomorrow.
func (p *Parts) Forget() {
	p.was.forget()
	p.will.forget()
	clear(p.seps[:])
}

// entries are those of branches at one level, from left to right, and the pages that they stand in, or that lead there.
type entries struct {
	items []item
	pages []pager.Ref
}

func (e *entries) forget() {
	clear(e.items)
	e.items, e.pages = e.items[:0], e.pages[:0]
}

// part adds what is below a part, which begins at separator sp, at level.
func (e *entries) part(w Writer, level uint8, t Tree, sp []byte) error {
	if t.Depth == 0 {
		return nil // all of it has gone
	}
	for t.Depth-1 < level { // so little is left that it became lower
		child, _, err := pageAt(w, t.Root, t.Depth-1)
		if err != nil {
			return err
		}
		rows, err := summed(t.Root, child)
		if err != nil {
			return err
		}
		ref, b, err := w.New(pager.KindBranch, t.Depth)
		if err != nil {
			return err
		}
		layBranch(b, []item{{nil, t.Root, rows}})
		t.Root = ref
		t.Depth++
	}
	return e.below(w, level, t.Root, t.Depth-1, sp)
}

// below adds the entries of the branches at level that are at ref or below it, which belongs at level at and begins at separator sp.
func (e *entries) below(w Writer, level uint8, ref pager.Ref, at uint8, sp []byte) error {
	b, n, err := pageAt(w, ref, at)
	if err != nil {
		return err
	}
	e.pages = append(e.pages, ref)
	if at == level {
		first := len(e.items)
		e.items = appendItems(e.items, b)
		if n > 0 {
			e.items[first].sep = sp
		}
		return nil
	}
	for i := range n {
		if i > 0 {
			sp = sep(b, n, i)
		}
		if err := e.below(w, level, childRef(b, n, i), at-1, sp); err != nil {
			return err
		}
	}
	return nil
}

// build makes a tree of entries, of which there is one at least: branches at level, and above them as many levels as it takes.
func build(w Writer, level uint8, items []item) (t Tree, err error) {
	for ; ; level++ {
		if level >= maxDepth {
			return t, damage(items[0].ref, "the tree would grow deeper than %d levels", maxDepth)
		}
		var above []item
		room := w.PageSize() - offHeads
		for pages := cutPages(items, room); len(items) > 0; pages-- {
			n := firstItems(items, room, max(pages, 1))
			ref, b, err := w.New(pager.KindBranch, level)
			if err != nil {
				return t, err
			}
			layBranch(b, items[:n])
			rows, err := summed(ref, b)
			if err != nil {
				return t, err
			}
			above = append(above, item{items[0].sep, ref, rows})
			items = items[n:]
		}
		if len(above) == 1 {
			return Tree{Root: above[0].ref, Depth: level + 1, Rows: above[0].rows &^ rowsOverflow}, nil
		}
		items = above
	}
}

// joinFill is how full in tenths branches are that the entries of a root are given to, when one has no room for all.
const joinFill = 8

func itemsSize(items []item) (size int) {
	for i := range items {
		size += branchEntry + len(items[i].sep)
	}
	return size
}

// cutPages is how many branches the entries are given to.
func cutPages(items []item, room int) int {
	size := itemsSize(items) - len(items[0].sep)
	if size <= room {
		return 1
	}
	return (size + room*joinFill/10 - 1) / (room * joinFill / 10)
}

// firstItems is how many of the entries go to the first of so many branches: an equal share of the bytes, as far as there is room.
func firstItems(items []item, room, pages int) int {
	share := (itemsSize(items) + pages - 1) / pages
	n, size := 1, branchEntry
	for n < len(items) && size < share {
		if size += branchEntry + len(items[n].sep); size > room {
			return n
		}
		n++
	}
	return n
}
