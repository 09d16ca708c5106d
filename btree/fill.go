package btree

import (
	"bytes"
	"slices"

	"github.com/ebbkv/ebb/pager"
)

// fillWindow is how many neighbours, at most, become fewer pages. Ten do if they are less than nine
// tenths full.
const fillWindow = 10

// A FillStep is the work of one step of Fill.
type FillStep struct {
	From  []byte // first key of the step; nil: the first key of the tree
	Reads int    // about so many pages are read
}

// Filled is the result of a step of Fill.
type Filled struct {
	Read  int    // pages read
	Saved int    // pages that the tree has less
	Moved int    // pages written anew
	Next  []byte // first key of the next step; nil: the tree is done
}

// Fill rewrites neighbouring pages whose entries fit into fewer, leaves and branches, where they have
// one parent. The rows stay as they are. New pages are full, as those of a Builder. A walk that saves
// no page writes none.
func Fill(w Writer, t *Tree, step FillStep) (Filled, error) {
	if err := t.checkDepth(); err != nil || t.Depth < 2 {
		return Filled{}, err
	}
	f := filler{FillStep: step, pageEditor: pageEditor{w: w}}
	ref, err := f.fill(t.Root, t.Depth-1)
	if err == nil && ref != t.Root {
		depth := t.Depth
		t.Root = ref
		err = f.collapse(t)
		f.Saved += int(depth - t.Depth)
	}
	f.releaseScratch()
	if err == nil && f.Next != nil && bytes.Compare(f.Next, step.From) <= 0 {
		err = damage(t.Root, "separators out of order") // steps would go round
	}
	return f.Filled, err
}

type filler struct {
	FillStep
	Filled
	pageEditor
	cells []detachedCell
	items []item
	cuts  []int // ends of the new pages, as indexes of cells or items
}

// fill fills the pages below the branch at ref, as far as the step goes. It returns the new reference
// of the branch.
func (f *filler) fill(ref pager.Ref, level uint8) (pager.Ref, error) {
	b, n, err := pageAt(f.w, ref, level)
	if err != nil {
		return ref, err
	}
	f.Read++
	first := 0
	if f.From != nil {
		first = branchSearch(b, n, f.From)
	}
	sizes := make([]int, 0, fillWindow+1) // used bytes of the children up to i
	for i := max(first-fillWindow+1, 0); i < count(b); i++ {
		n := count(b)
		if i > first && f.Read >= f.Reads {
			f.Next = append([]byte{}, sep(b, n, i)...)
			break
		}
		if level == 1 {
			readChildren(f.w, b, n, i, 0)
		} else if i >= first {
			was := childRef(b, n, i)
			is, err := f.fill(was, level-1)
			f.From = nil
			if err != nil {
				return ref, err
			}
			if is != was {
				if ref, b, err = f.edit(ref, level); err != nil {
					return ref, err
				}
				setChildRef(b, n, i, is)
			}
			if f.Next != nil {
				break
			}
		}
		cb, _, err := pageAt(f.w, childRef(b, n, i), level-1)
		if err != nil {
			return ref, err
		}
		if level == 1 && i >= first {
			f.Read++
		}
		if len(sizes) == fillWindow {
			sizes = append(sizes[:0], sizes[1:]...)
		}
		sizes = append(sizes, UsedBytes(cb))
		for m := 2; m <= len(sizes); m++ {
			saved := 0
			if ref, b, saved, err = f.join(ref, b, i-m+1, i+1, level, sizes[len(sizes)-m:]); err != nil {
				return ref, err
			}
			if saved > 0 {
				if sizes = sizes[:len(sizes)-saved]; i < first {
					first -= saved
				} else {
					first = min(first, i-saved)
				}
				i -= saved
				m = 1 // the last of the new pages may fit with others before them
			}
		}
	}
	return ref, nil
}

// join rewrites children [from, to) of branch b at level into fewer pages, if their entries fit. sizes
// are the used bytes of the children, and become those of the new pages. It returns the branch, edited
// if pages were saved.
func (f *filler) join(ref pager.Ref, b []byte, from, to int, level uint8, sizes []int) (
	nref pager.Ref, nb []byte, saved int, err error,
) {
	total := 0
	for _, size := range sizes {
		total += size
	}
	limit := len(b) - offHeads
	if level == 1 {
		limit = len(b) - offLeafHeads
	}
	if total > (len(sizes)-1)*limit {
		return ref, b, 0, nil
	}
	s := f.scratchPages(len(b))
	src := s.copyOf(b, 0)
	if level == 1 {
		err = f.collectCells(src, from, to)
	} else {
		err = f.collectItems(src, from, to, level-1)
	}
	if err != nil || len(f.cuts) >= to-from {
		return ref, b, 0, err
	}
	s.items = appendItems(s.items[:0], src)
	was, fresh := s.items[from:to], f.separators(s.items[from], level)
	if UsedBytes(b)-itemsSize(was)+itemsSize(fresh) > payload(b) {
		return ref, b, 0, nil // their separators are longer
	}
	if err := f.between(src, fresh, from, to); err != nil {
		return ref, b, 0, err
	}
	if err := f.writePages(was, fresh, level-1, sizes); err != nil {
		return ref, b, 0, err
	}
	if ref, b, err = f.edit(ref, level); err != nil {
		return ref, b, 0, err
	}
	writeBranch(b, slices.Concat(s.items[:from], fresh, s.items[to:]))
	for _, it := range was {
		if err := f.w.Free(it.ref); err != nil {
			return ref, b, 0, err
		}
	}
	saved = len(was) - len(fresh)
	f.Saved += saved
	f.Moved += len(fresh)
	return ref, b, saved, nil
}

// collectCells collects the cells of leaves [from, to) below branch b, and cuts them into full leaves.
func (f *filler) collectCells(b []byte, from, to int) error {
	f.cells, f.cuts = f.cells[:0], f.cuts[:0]
	var need leafSize
	for i := from; i < to; i++ {
		ref := childRef(b, count(b), i)
		cb, n, err := pageAt(f.w, ref, 0)
		if err != nil {
			return err
		}
		k := len(f.cells)
		f.cells = appendCells(f.cells, cb, 0, n)
		if k > 0 && k < len(f.cells) && bytes.Compare(f.cells[k-1].key(), f.cells[k].key()) >= 0 {
			return damage(ref, "keys out of order with those of the page before it")
		}
		for ; k < len(f.cells); k++ {
			if c := &f.cells[k]; !need.add(int(c.klen), c.info, len(b)) {
				f.cuts, need = append(f.cuts, k), leafSize{}
				need.add(int(c.klen), c.info, len(b))
			}
		}
	}
	f.cuts = append(f.cuts, len(f.cells))
	return nil
}

// collectItems collects the entries of branches [from, to), which are at level, below branch b, and
// cuts them into full branches of two entries at least.
func (f *filler) collectItems(b []byte, from, to int, level uint8) error {
	f.items, f.cuts = f.items[:0], f.cuts[:0]
	size, start := 0, 0
	for i := from; i < to; i++ {
		ref := childRef(b, count(b), i)
		cb, _, err := pageAt(f.w, ref, level)
		if err != nil {
			return err
		}
		k := len(f.items)
		f.items = appendItems(f.items, cb)
		if k > 0 {
			f.items[k].sep = sep(b, count(b), i)
		}
		for ; k < len(f.items); k++ {
			it := &f.items[k]
			if k > 1 && bytes.Compare(f.items[k-1].sep, it.sep) >= 0 {
				return damage(ref, "separators out of order with those of the page before it")
			}
			if k == start {
				size = branchEntry // its separator goes to the level above
			} else if size += branchEntry + len(it.sep); size > len(b)-offHeads {
				f.cuts, start, size = append(f.cuts, k), k, branchEntry
			}
		}
	}
	if n := len(f.cuts); n > 0 && len(f.items)-f.cuts[n-1] < 2 {
		f.cuts[n-1]--
	}
	f.cuts = append(f.cuts, len(f.items))
	return nil
}

// separators returns entries of a branch at level for the new pages, of which the first comes in place
// of entry first. They have no references yet.
func (f *filler) separators(first item, level uint8) []item {
	fresh := make([]item, len(f.cuts))
	fresh[0].sep = first.sep
	for i, k := range f.cuts[:len(f.cuts)-1] {
		if level == 1 {
			fresh[i+1].sep = separator(f.cells[k-1].key(), f.cells[k].key())
		} else {
			fresh[i+1].sep = f.items[k].sep
		}
	}
	return fresh
}

// between verifies that the separators of new pages are between those of the entries beside the ones
// that they replace.
func (f *filler) between(b []byte, fresh []item, from, to int) error {
	if len(fresh) == 1 {
		return nil
	}
	if err := sepBetween(b, count(b), from, to, fresh[1].sep); err != nil {
		return err
	}
	return sepBetween(b, count(b), from, to, fresh[len(fresh)-1].sep)
}

// writePages writes the new pages, which are at level, and completes their entries. The rows are those
// of the entries that they replace.
func (f *filler) writePages(was, fresh []item, level uint8, sizes []int) error {
	kind, from, rows := pager.KindLeaf, 0, uint64(0)
	if level > 0 {
		kind = pager.KindBranch
	}
	for _, it := range was {
		rows += it.rows &^ rowsOverflow
	}
	for i, to := range f.cuts {
		ref, b, err := f.w.New(kind, level)
		if err != nil {
			return err
		}
		if level == 0 {
			writeLeaf(b, f.cells[from:to])
		} else {
			writeBranch(b, f.items[from:to])
		}
		fresh[i].ref, sizes[i], from = ref, UsedBytes(b), to
		if fresh[i].rows, err = checkedSummary(ref, b); err != nil {
			return err
		}
		rows -= fresh[i].rows &^ rowsOverflow
	}
	if rows != 0 {
		return damage(was[0].ref, "the page above counts other rows than there are")
	}
	return nil
}
