package txn

import "github.com/ebbkv/ebb/pager"

// allocatedPages lists the runs that a transaction has allocated, in order. A large transaction
// allocates millions of pages, most of them consecutive: those share an entry. The zero value is
// empty.
type allocatedPages struct {
	entries []allocatedEntry
	n       int // runs

	// Position of the last each: it was in entry at, whose first run is the before-th. The next
	// each starts there if it can.
	at, before int
}

// allocatedEntry is one run, or consecutive single pages.
type allocatedEntry struct {
	pageRun
	singles bool // n runs of one page each
}

func (e *allocatedEntry) runs() int {
	if e.singles {
		return int(e.n)
	}
	return 1
}

func (e *allocatedEntry) nth(i int) pageRun {
	if e.singles {
		return pageRun{e.id + pager.Pgid(i), 1}
	}
	return e.pageRun
}

func (t *allocatedPages) len() int { return t.n }

func (t *allocatedPages) push(r pageRun) {
	t.n++
	if last := len(t.entries) - 1; r.n == 1 && last >= 0 {
		e := &t.entries[last]
		if e.singles && e.id+pager.Pgid(e.n) == r.id && e.n < 1<<31 {
			e.n++
			return
		}
	}
	t.entries = append(t.entries, allocatedEntry{r, r.n == 1})
}

func (t *allocatedPages) pushAll(from *allocatedPages) {
	from.each(0, func(r pageRun) bool {
		t.push(r)
		return true
	})
}

// reset empties the list, and keeps its memory.
func (t *allocatedPages) reset() { *t = allocatedPages{entries: t.entries[:0]} }

// each calls fn with the runs from the n-th on until fn returns false.
func (t *allocatedPages) each(n int, fn func(pageRun) (more bool)) {
	if n < t.before {
		t.at, t.before = 0, 0
	}
	// Not past the last entry, which may still grow.
	for t.at < len(t.entries)-1 && t.before+t.entries[t.at].runs() <= n {
		t.before += t.entries[t.at].runs()
		t.at++
	}
	skip := n - t.before
	for i := t.at; i < len(t.entries); i++ {
		e := &t.entries[i]
		for k := skip; k < e.runs(); k++ {
			if !fn(e.nth(k)) {
				return
			}
		}
		skip = 0
	}
}

// cut keeps the first n runs.
func (t *allocatedPages) cut(n int) {
	for t.n > n {
		last := len(t.entries) - 1
		e := &t.entries[last]
		if more := t.n - n; e.runs() > more {
			e.n -= uint32(more)
			t.n = n
			break
		}
		t.n -= e.runs()
		t.entries = t.entries[:last]
	}
	t.at, t.before = 0, 0
}

// remove removes r if it is among the runs of the last so many entries, and says whether it was.
func (t *allocatedPages) remove(r pageRun, entries int) bool {
	for i := len(t.entries) - 1; i >= max(0, len(t.entries)-entries); i-- {
		e := t.entries[i]
		if e.pageRun == r && (!e.singles || r.n == 1) {
			t.replace(i, nil)
			return true
		}
		if e.singles && r.n == 1 && r.id >= e.id && r.id < e.id+pager.Pgid(e.n) {
			before := uint32(r.id - e.id)
			t.replace(i, []allocatedEntry{
				{pageRun{e.id, before}, true}, {pageRun{r.id + 1, e.n - before - 1}, true},
			})
			return true
		}
	}
	return false
}

// replace replaces an entry by others, which have one run less; those without runs are dropped.
func (t *allocatedPages) replace(i int, others []allocatedEntry) {
	tail := append([]allocatedEntry(nil), t.entries[i+1:]...)
	t.entries = t.entries[:i]
	for _, e := range others {
		if e.n > 0 {
			t.entries = append(t.entries, e)
		}
	}
	t.entries = append(t.entries, tail...)
	t.n--
	t.at, t.before = 0, 0
}

// drop removes single pages.
func (t *allocatedPages) drop(pages map[pager.Pgid]bool) {
	old := *t
	*t = allocatedPages{}
	old.each(0, func(r pageRun) bool {
		if r.n > 1 || !pages[r.id] {
			t.push(r)
		}
		return true
	})
}
