package ui

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"sync"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/pager"
)

// A walk reads all trees of a checkpoint, beside the requests: which tree a page belongs to is told by
// the pages above it, and by nothing else. It reads no large values.
type walk struct {
	cancel context.CancelFunc
	ended  chan struct{}

	mu       sync.Mutex // guards the fields below
	trees    []*treeInfo
	owner    []uint16       // by page: index in trees, plus 1; 0: none, or not known yet
	seen     *pager.UsedSet // pages that a tree refers to
	inside   *pager.UsedSet // of them, those of extents behind the first one
	births   map[pager.Epoch]int64
	read     int64 // pages
	done     bool
	moved    bool // a later checkpoint was complete before the walk was: findings would mean nothing
	findings []finding
	found    int // findings, with those above mostFindings
}

// finding is damage.
type finding struct {
	Page   uint64 `json:"page"`
	Tree   string `json:"tree"`
	Detail string `json:"detail"`
}

const (
	mostFindings = 200
	// mostOwned bounds the pages whose tree is kept, at 2 bytes each: 64 GiB of 4 KiB.
	mostOwned = 1 << 24
)

// startWalk begins a walk of the checkpoint of m on a descriptor of its own. moved is asked at the
// end.
func startWalk(fsys vfs.FS, path string, m *pager.Meta, moved func(*state) bool) *walk {
	ctx, cancel := context.WithCancel(context.Background())
	w := &walk{cancel: cancel, ended: make(chan struct{}), births: map[pager.Epoch]int64{}}
	go func() {
		defer close(w.ended)
		defer cancel()
		if m != nil {
			w.run(ctx, fsys, path, m)
		}
		isMoved := m != nil && moved(&state{meta: m})
		w.mu.Lock()
		defer w.mu.Unlock()
		w.done, w.moved = true, isMoved
		if isMoved {
			w.findings, w.found = nil, 0
		}
	}()
	return w
}

// stop ends the walk, and waits for it.
func (w *walk) stop() {
	w.cancel()
	<-w.ended
}

func (w *walk) run(ctx context.Context, fsys vfs.FS, path string, m *pager.Meta) {
	raw, err := pager.OpenRaw(fsys, path, true)
	if err != nil {
		w.find(0, "main file", err.Error())
		return
	}
	defer raw.Close()
	if raw.PageSize() != m.PageSize {
		return // another file: moved will tell
	}
	r := &reader{RawFile: raw, ctx: ctx}
	trees := listTrees(r, m)
	w.mu.Lock()
	w.trees = trees
	w.owner = make([]uint16, min(raw.Pages(), mostOwned))
	w.seen, w.inside = pager.NewUsedSet(raw.Pages()), pager.NewUsedSet(raw.Pages())
	w.mu.Unlock()
	for i, t := range trees {
		w.tree(r, t, uint16(i+1))
	}
}

// tree walks one tree.
func (w *walk) tree(r *reader, t *treeInfo, number uint16) {
	r.onPage = func(b []byte) {
		h := pager.ReadHeader(b)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.read++
		w.births[h.Epoch]++
		if int(h.Level) < len(t.Levels) {
			l := &t.Levels[h.Level]
			l.Pages++
			l.Rows += int64(h.Count)
			l.Used += int64(tree.UsedBytes(b))
		}
	}
	r.extent = func(size int) {
		w.mu.Lock()
		defer w.mu.Unlock()
		t.Extents++
		t.ExtentBytes += int64(size)
		t.ExtentPages += int64(pager.ExtentPages(size, r.PageSize()))
	}
	visit := func(ref pager.Ref, pages int) error {
		if r.ctx.Err() != nil {
			return r.ctx.Err()
		}
		if !w.own(ref.Pgid, pages, number) {
			w.find(ref.Pgid, t.name(), "two pages refer to it, or the file ends before it")
			return tree.ErrSkip
		}
		return nil
	}
	report := func(ref pager.Ref, detail string) { w.find(ref.Pgid, t.name(), detail) }
	err := tree.Check(r, t.tree, visit, report)
	if err != nil && r.ctx.Err() == nil {
		w.find(pager.Pgid(t.Root), t.name(), err.Error())
	}
}

// own makes pages those of a tree; false: the first one is one of a tree already, or past the end. The
// work for all extents that a damaged file claims is bounded by its pages.
func (w *walk) own(id pager.Pgid, pages int, number uint16) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range pages {
		at := id + pager.Pgid(i)
		if !w.seen.Add(at) {
			return i > 0
		}
		if uint64(at) < uint64(len(w.owner)) {
			w.owner[at] = number
		}
		if i > 0 {
			w.inside.Add(at)
		}
	}
	return true
}

func (w *walk) find(id pager.Pgid, tree, detail string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.found++; len(w.findings) < mostFindings {
		w.findings = append(w.findings, finding{uint64(id), tree, detail})
	}
}

// ownerOf gives the tree of a page, as an index in trees; -1: none is known.
func (w *walk) ownerOf(id pager.Pgid) (index int, inside bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if uint64(id) < uint64(len(w.owner)) {
		index = int(w.owner[id])
	}
	return index - 1, w.inside != nil && w.inside.Has(id)
}

// progress is how far the walk is, and what it has found.
type progress struct {
	Done     bool      `json:"done"`
	Moved    bool      `json:"moved"`
	Pages    int64     `json:"pages_read"`
	Found    int       `json:"found"`
	Findings []finding `json:"findings"`
}

func (w *walk) progress() progress {
	w.mu.Lock()
	defer w.mu.Unlock()
	return progress{w.done, w.moved, w.read, w.found, append([]finding{}, w.findings...)}
}

// birth is a checkpoint, and how many pages of trees that it wrote are still in use.
type birth struct {
	Checkpoint uint32 `json:"checkpoint"`
	Pages      int64  `json:"pages"`
}

// mostBirths bounds a list of checkpoints: the latest ones.
const mostBirths = 64

// apiTrees gives the trees with their levels, which the walk fills.
func (s *Server) apiTrees(r *http.Request) (any, error) {
	t, err := s.current(r)
	if err != nil {
		return nil, err
	}
	w := t.walk
	w.mu.Lock()
	defer w.mu.Unlock()
	trees := []treeInfo{}
	for _, t := range w.trees[:min(len(w.trees), mostListed)] {
		c := *t
		c.Levels = slices.Clone(t.Levels)
		trees = append(trees, c)
	}
	births := []birth{}
	for _, epoch := range slices.Backward(slices.Sorted(maps.Keys(w.births))) {
		if births = append(births, birth{uint32(epoch), w.births[epoch]}); len(births) == mostBirths {
			break
		}
	}
	return map[string]any{
		"trees": trees, "all": len(w.trees), "births": births, "done": w.done, "page_size": t.raw.PageSize(),
	}, nil
}

// mostListed bounds the trees, families and segments of an answer.
const mostListed = 1000
