package btree

import (
	"bytes"
	"slices"

	"github.com/ebbkv/ebb/pager"
)

// Partitions are a tree that was cut into ranges of keys, each a tree of its own, so that several
// goroutines change a part each. What is cut are the branches at one level, the root's as a rule,
// between two of their children: what is above is left out, and nothing changes it meanwhile. No
// page is on the way to keys of two parts. Join makes one tree of them again.
//
// The branches that are cut, and those above, stay where they are until then: what the parts have
// in their place is born with them.
type Partitions struct {
	level uint8 // of the branches that were cut
	n     int
	trees [MaxPartitions]Tree
	from  [MaxPartitions]int // the entry that a part begins with

	seps  [MaxPartitions][]byte // where the parts begin; in pages that were cut
	heads [MaxPartitions]uint64 // of these

	oldEntries, newEntries branchEntries // of the branches that are cut, and of those that come into their place
}

// MaxPartitions is how many parts a tree is cut into: four for each who may change it in place.
const MaxPartitions = 4 * pager.MaxUndoWriters

// boundarySamples is how many changes are looked at for where to cut, for each part that there may
// be.
const boundarySamples = 16

// maxBoundaryLevels is how many levels of branches are tried, from the root down: one with few
// children may lead most of the changes to one of them.
const maxBoundaryLevels = 2

// maxSplitBranches is how many branches are cut at most. There are so few where a root leads to so
// few that it cannot be cut well.
const maxSplitBranches = 32

// Partition cuts t into most parts at most, so that about as many of the changes come to each. n is
// how many parts there are. It is 1, and nothing has happened, if the tree is too small, or the
// keys lie so close together that more than half of them, and a little, would come to one part, as
// far as a look at some of them shows.
func (p *Partitions) Partition(w Writer, t Tree, changes []Change, most int) (n int, err error) {
	most = min(most, MaxPartitions)
	if t.Depth < 2 || t.Depth >= maxDepth || most < 2 {
		return 1, t.checkDepth()
	}
	// A look at a branch or two before all of those that may be cut: rows in order come to one page
	// below them.
	first, below := changes[0].Key, max(t.Depth, maxBoundaryLevels+1)-maxBoundaryLevels-1
	if sameLeaf(w, t, first, changes[len(changes)/2].Key, below) &&
		sameLeaf(w, t, first, changes[len(changes)-1].Key, below) {
		return 1, nil
	}
	for level := t.Depth - 1; level > 0 && t.Depth-level <= maxBoundaryLevels; level-- {
		if level < t.Depth-1 && len(p.oldEntries.items) > maxSplitBranches {
			break
		}
		p.level = level
		p.oldEntries.reset()
		if err := p.oldEntries.addBelow(w, level, t.Root, t.Depth-1, nil); err != nil {
			return 1, err
		}
		if p.chooseBoundaries(changes, most) {
			return p.splitBranches(w)
		}
	}
	p.oldEntries.reset()
	return 1, nil
}

// splitBranches makes the parts of what was chosen.
func (p *Partitions) splitBranches(w Writer) (n int, err error) {
	for i := range p.n {
		own := p.oldEntries.items[p.from[i]:]
		if i+1 < p.n {
			own = own[:p.from[i+1]-p.from[i]]
		}
		p.seps[i] = own[0].sep
		p.heads[i] = keyHead64(p.seps[i], 0)
		if p.trees[i], err = buildBranches(w, p.level, own); err != nil {
			return 1, err
		}
	}
	return p.n, nil
}

// chooseBoundaries says which entry each part begins with, if that is worth it.
func (p *Partitions) chooseBoundaries(changes []Change, most int) bool {
	items := p.oldEntries.items
	step := len(changes)/(boundarySamples*most) | 1 // odd: every other change may be in another place
	var buf [2 * boundarySamples * MaxPartitions]int
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
func (p *Partitions) Tree(i int) *Tree { return &p.trees[i] }

// Index is the part that key belongs to.
func (p *Partitions) Index(key []byte) int {
	h, i := keyHead64(key, 0), 1
	for i < p.n && (p.heads[i] < h || p.heads[i] == h && bytes.Compare(p.seps[i], key) <= 0) {
		i++
	}
	return i - 1
}

// Merge makes t of the parts. All that was born in them is w's now.
func (p *Partitions) Merge(w Writer, t *Tree) error {
	defer p.Reset()
	for i := range p.n {
		if err := p.newEntries.addPartition(w, p.level, p.trees[i], p.seps[i]); err != nil {
			return err
		}
	}
	joined := Tree{}
	if len(p.newEntries.items) > 0 {
		var err error
		if joined, err = buildBranches(w, p.level, p.newEntries.items); err != nil {
			return err
		}
	}
	for _, gone := range [2][]pager.Ref{p.oldEntries.pages, p.newEntries.pages} {
		for _, ref := range gone {
			if err := w.Free(ref); err != nil {
				return err
			}
		}
	}
	e := pageEditor{w: w}
	*t = joined
	return e.collapse(t)
}

// Reset is for parts that will not be joined. Pointers into pages are wiped: their memory may be
// gone tomorrow.
func (p *Partitions) Reset() {
	p.oldEntries.reset()
	p.newEntries.reset()
	clear(p.seps[:])
}

// branchEntries are those of branches at one level, from left to right, and the pages that they
// stand in, or that lead there.
type branchEntries struct {
	items []item
	pages []pager.Ref
}

func (e *branchEntries) reset() {
	clear(e.items)
	e.items, e.pages = e.items[:0], e.pages[:0]
}

// addPartition adds what is below a part, which begins at separator sp, at level.
func (e *branchEntries) addPartition(w Writer, level uint8, t Tree, sp []byte) error {
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
	return e.addBelow(w, level, t.Root, t.Depth-1, sp)
}

// addBelow adds the entries of the branches at level that are at ref or below it, which belongs at
// level at and begins at separator sp.
func (e *branchEntries) addBelow(w Writer, level uint8, ref pager.Ref, at uint8, sp []byte) error {
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
		if err := e.addBelow(w, level, childRef(b, n, i), at-1, sp); err != nil {
			return err
		}
	}
	return nil
}

// buildBranches makes a tree of entries, of which there is one at least: branches at level, and
// above them as many levels as it takes.
func buildBranches(w Writer, level uint8, items []item) (t Tree, err error) {
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

// mergeFill is how full in tenths branches are that the entries of a root are given to, when one
// has no room for all.
const mergeFill = 8

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
	return (size + room*mergeFill/10 - 1) / (room * mergeFill / 10)
}

// firstItems is how many of the entries go to the first of so many branches: an equal share of the
// bytes, as far as there is room.
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
