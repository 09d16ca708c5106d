package btree

import (
	"bytes"
	"slices"
	"sort"

	"github.com/ebbkv/ebb/pager"
)

// Partitions are a tree that is divided into ranges of keys, each a tree of its own, so that
// several goroutines change one partition each. Partition divides the branches at one level, as a
// rule the root, between two of their children. The branches above are left out, and stay unchanged
// until Merge. No page is on the path to keys of two partitions. Merge makes one tree of them
// again.
//
// The divided branches, and those above, stay allocated until Merge: the partitions have new
// branches instead.
type Partitions struct {
	level uint8 // of the divided branches
	n     int
	trees [MaxPartitions]Tree
	from  [MaxPartitions]int // the first entry of each partition

	seps  [MaxPartitions][]byte // first separator of each; in divided pages
	heads [MaxPartitions]uint64 // of these

	oldEntries, newEntries branchEntries // of the divided branches, and of the new ones
}

// MaxPartitions bounds the number of partitions: four for each writer that may change pages in
// place.
const MaxPartitions = 4 * pager.MaxUndoWriters

// boundarySamples is the number of changes per partition that chooseBoundaries samples.
const boundarySamples = 16

// maxBoundaryLevels is the number of branch levels that Partition tries, from the root down: most
// of the changes may lie below one child of a root with few children.
const maxBoundaryLevels = 2

// maxSplitBranches bounds the number of divided branches. A root with too few children to divide
// has so few branches below it.
const maxSplitBranches = 32

// Partition divides t into at most most partitions, with about the same number of changes each, and
// returns their number n. It returns 1, and does nothing, if the tree is too small, or if more than
// about five eighths of the sampled changes would go to one partition.
func (p *Partitions) Partition(w Writer, t Tree, changes []Change, most int) (n int, err error) {
	most = min(most, MaxPartitions)
	if t.Depth < 2 || t.Depth >= maxDepth || most < 2 {
		return 1, t.checkDepth()
	}
	// First check a branch or two: rows in order belong to one page below them.
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

// splitBranches builds the partitions at the chosen boundaries.
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

// chooseBoundaries chooses the first entry of each partition, and reports whether a division pays.
func (p *Partitions) chooseBoundaries(changes []Change, most int) bool {
	items := p.oldEntries.items
	step := len(changes)/(boundarySamples*most) | 1 // odd: changes may alternate between two ranges
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

// itemOf returns the index of the entry that key belongs to. The items begin at the left end of the
// tree.
func itemOf(items []item, key []byte) int {
	return sort.Search(len(items)-1, func(i int) bool { return bytes.Compare(items[i+1].sep, key) > 0 })
}

// Tree returns partition i.
func (p *Partitions) Tree(i int) *Tree { return &p.trees[i] }

// Index returns the partition that key belongs to.
func (p *Partitions) Index(key []byte) int {
	h, i := keyHead64(key, 0), 1
	for i < p.n && (p.heads[i] < h || p.heads[i] == h && bytes.Compare(p.seps[i], key) <= 0) {
		i++
	}
	return i - 1
}

// Merge makes t of the partitions. Their new pages now belong to w.
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

// Reset drops partitions that will not be merged. It clears pointers into pages, whose memory may
// be unmapped later.
func (p *Partitions) Reset() {
	p.oldEntries.reset()
	p.newEntries.reset()
	clear(p.seps[:])
}

// branchEntries are the entries of the branches at one level, from left to right, with the pages of
// these branches and of those above.
type branchEntries struct {
	items []item
	pages []pager.Ref
}

func (e *branchEntries) reset() {
	clear(e.items)
	e.items, e.pages = e.items[:0], e.pages[:0]
}

// addPartition adds the entries at level of a partition that begins at separator sp.
func (e *branchEntries) addPartition(w Writer, level uint8, t Tree, sp []byte) error {
	if t.Depth == 0 {
		return nil // all rows were deleted
	}
	for t.Depth-1 < level { // deletions made the tree lower
		child, _, err := pageAt(w, t.Root, t.Depth-1)
		if err != nil {
			return err
		}
		rows, err := checkedSummary(t.Root, child)
		if err != nil {
			return err
		}
		ref, b, err := w.New(pager.KindBranch, t.Depth)
		if err != nil {
			return err
		}
		writeBranch(b, []item{{nil, t.Root, rows}})
		t.Root = ref
		t.Depth++
	}
	return e.addBelow(w, level, t.Root, t.Depth-1, sp)
}

// addBelow adds the entries of the branches at level in the subtree at ref, whose root is at level
// at and begins at separator sp.
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

// buildBranches makes a tree of at least one entry: branches at level, and as many levels above as
// needed.
func buildBranches(w Writer, level uint8, items []item) (t Tree, err error) {
	for ; ; level++ {
		if level >= maxDepth {
			return t, damage(items[0].ref, "the tree would grow deeper than %d levels", maxDepth)
		}
		var above []item
		limit := w.PageSize() - offHeads
		for pages := branchPages(items, limit); len(items) > 0; pages-- {
			n := firstItems(items, limit, max(pages, 1))
			ref, b, err := w.New(pager.KindBranch, level)
			if err != nil {
				return t, err
			}
			writeBranch(b, items[:n])
			rows, err := checkedSummary(ref, b)
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

// mergeFill is the fill in tenths of the branches that buildBranches makes, if one branch cannot
// hold all entries.
const mergeFill = 8

func itemsSize(items []item) (size int) {
	for i := range items {
		size += branchEntry + len(items[i].sep)
	}
	return size
}

// branchPages is the number of branches for the entries.
func branchPages(items []item, limit int) int {
	size := itemsSize(items) - len(items[0].sep)
	if size <= limit {
		return 1
	}
	return (size + limit*mergeFill/10 - 1) / (limit * mergeFill / 10)
}

// firstItems is the number of entries for the first of so many branches: an equal share of the
// bytes, as far as they fit.
func firstItems(items []item, limit, pages int) int {
	share := (itemsSize(items) + pages - 1) / pages
	n, size := 1, branchEntry
	for n < len(items) && size < share {
		if size += branchEntry + len(items[n].sep); size > limit {
			return n
		}
		n++
	}
	return n
}
