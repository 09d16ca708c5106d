package txn

import (
	"fmt"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/invariant"
	"github.com/ebbkv/ebb/pager"
)

// writer is what the one open write transaction has done so far. The store has one, used again by each transaction,
// so that a small commit allocates next to nothing. It belongs to the holder of the writer lock.
type writer struct {
	s     *Store
	tx    *Tx         // whose it is; nil for upkeep
	base  pager.Epoch // of the state it began from
	owner uint64      // pages born under it may be changed in place; a savepoint takes a new one
	first uint64      // the transaction's first owner
	trees trees
	mods  uint64 // changes whenever a page may have changed under a cursor; never goes back

	// fingers are for the trees that were put into last: those of one family have different places. They hold as long as
	// mods is fingersAt.
	fingers   [4]finger
	fingersAt uint64

	// taken lists every page that the transaction got, spare those of them that it gave up again and may take anew.
	// freed are pages to give back at commit: of earlier states, or its own from before a savepoint.
	taken []run
	spare []pager.Pgid
	freed []freedRun

	changed []TreeID // trees whose root may differ from the state before, with repetitions
	nextID  TreeID
	trash   uint64
	// redo holds what the log does not have yet of the commit's payload; flushed counts what it has.
	redo    []byte
	flushed int64
	dirty   bool // anything to commit
	silent  bool // nothing is logged
	// spillOver is the size of frames above which pages are written early.
	spillOver int64
	behind    int // so many of taken were looked at by spillBehind

	scout  *scout // nil: none has been needed yet
	ahead  ahead
	lazy   bool      // the commit will not wait for a sync
	extent pager.Ref // that was written last
	named  int64     // bytes of values in extents that the redo names

	mayPatch bool // leaves may get patches

	mayUndo bool        // pages may be changed in place, if the undo can be opened
	undo    *pager.Undo // opened

	bound bool // MaxBytes binds: the transaction has put something

	saves []save
	kept  []byte // copies handed out by keep
}

type finger struct {
	id TreeID
	tree.Finger
}

type run struct {
	id pager.Pgid
	n  uint32
}

// freedRun is pages that some state reaches and newer ones do not.
type freedRun struct {
	id     pager.Pgid
	birth  uint64      // serial under which they were born; 0: before the store was opened
	serial uint64      // first version that does not reach them
	n      uint32      // 0: only the frame goes, the page stays
	epoch  pager.Epoch // of birth
	until  pager.Epoch // first checkpoint that does not reach them
	own    bool        // born in the transaction that frees them
	named  bool        // perhaps, by the log
	base   bool        // of a patched page: it stays until that has been written
}

func (w *writer) begin() {
	s := w.s
	s.serial++
	w.owner, w.first = s.serial, s.serial
	w.base = s.head.base
	if s.head.trees.many != nil {
		w.trees = s.head.trees.copy()
	} else {
		w.trees = trees{few: append(w.trees.few[:0], s.head.trees.few...)}
	}
	w.taken, w.spare, w.freed = w.taken[:0], w.spare[:0], w.freed[:0]
	w.changed, w.saves = w.changed[:0], w.saves[:0]
	w.nextID, w.trash = s.head.nextID, s.head.trash
	w.redo = append(w.redo[:0], make([]byte, redoHead)...)
	w.flushed, w.dirty, w.silent = 0, false, false
	w.mods++
	w.spillOver, w.behind = s.o.CacheBytes, 0
	w.tx = nil
	w.kept = nil
	w.lazy, w.named = false, 0
	w.mayUndo, w.undo = false, nil
	w.mayPatch, w.ahead = false, ahead{}
	s.pg.Overdraft(false) // a fault in a page may have left it on
	if w.bound = false; s.o.MaxBytes > 0 && s.started {
		s.log.SetBound(0)
	}
}

// set notes a tree's new root.
func (w *writer) set(id TreeID, t tree.Tree) {
	w.s.stamps++
	w.trees.set(treeState{id, t, w.s.stamps})
	w.noteChanged(id)
	w.mods++
}

func (w *writer) noteChanged(id TreeID) {
	if n := len(w.changed); n > 0 && w.changed[n-1] == id {
		return
	}
	w.changed = append(w.changed, id)
}

// keep returns a copy of a small value that stays as it is until the transaction ends. Large values lie in extents: see Tx.Extent.
func (w *writer) keep(b []byte) []byte {
	if len(b) > tree.MaxInline(w.PageSize()) {
		return b
	}
	if len(b) == 0 {
		return []byte{}
	}
	if cap(w.kept)-len(w.kept) < len(b) {
		w.kept = make([]byte, 0, max(keepChunk, len(b))) // earlier copies live on in the old chunk
	}
	at := len(w.kept)
	w.kept = append(w.kept, b...)
	return w.kept[at:len(w.kept):len(w.kept)]
}

const keepChunk = 4 << 10

// PageSize, Page, Near, Extent, Owned, Edit, New, Free, NewExtent and FreeExtent make it a btree.Writer.
func (w *writer) PageSize() int { return w.s.pg.PageSize() }

func (w *writer) Page(ref pager.Ref) ([]byte, error) { return w.s.pg.Page(ref, w.base) }

func (w *writer) Leaf(ref pager.Ref) (b, changes []byte, err error) { return w.s.pg.Leaf(ref, w.base) }

func (w *writer) Extent(ref pager.Ref, size int) ([]byte, error) { return w.s.pg.Extent(ref, size) }

func (w *writer) Ask(ref pager.Ref) { w.s.pg.Ask(ref) }

func (w *writer) Near(ref pager.Ref, n int) []byte { return w.s.pg.Near(ref, w.base, n) }

func (w *writer) Owned(ref pager.Ref) bool {
	return ref.Epoch == w.s.epoch && w.s.pg.Owner(ref.Pgid) == w.owner
}

func (w *writer) Edit(ref pager.Ref) (pager.Ref, []byte, error) {
	if w.Owned(ref) {
		b, err := w.s.pg.Frame(ref, w.base)
		return ref, b, err
	}
	old, changes, err := w.Leaf(ref)
	if err != nil {
		return pager.Ref{}, nil, err
	}
	fresh, b, err := w.take()
	if err != nil {
		return pager.Ref{}, nil, err
	}
	if err := w.s.pg.Merge(fresh, b, old, changes); err != nil {
		return pager.Ref{}, nil, err
	}
	return fresh, b, w.Free(ref)
}

// Patchable gives patches to leaves of stores of which not all fit into the frames between two checkpoints: in others every leaf gets so many
// rows that it may as well have a frame at once.
func (w *writer) Patchable(ref pager.Ref) (most int) {
	s := w.s
	if !w.mayPatch || s.pg.PatchBytes() > s.fullFrames() || !s.pg.Patchable(ref, s.epoch) {
		return 0
	}
	return s.pg.MostPatch()
}

func (w *writer) Base(ref pager.Ref) (base pager.Ref, b, changes []byte, err error) {
	return w.s.pg.Base(ref, w.base, w.s.epoch)
}

func (w *writer) Patch(ref, base pager.Ref, changes []byte) (pager.Ref, error) {
	fresh, err := w.s.pg.Patch(ref, base, w.s.epoch, w.owner, changes)
	if err != nil {
		return pager.Ref{}, w.s.spaceError(err)
	}
	if fresh == ref {
		return ref, nil
	}
	w.taken = append(w.taken, run{fresh.Pgid, 1})
	n := len(w.freed)
	if err := w.Free(ref); err != nil {
		return pager.Ref{}, err
	}
	if len(w.freed) > n {
		w.freed[n].base = ref == base
	}
	return fresh, nil
}

func (w *writer) PatchBeside(base pager.Ref, changes []byte) (pager.Ref, error) {
	fresh, err := w.s.pg.PatchBeside(base, w.s.epoch, w.owner, changes)
	if err != nil {
		return pager.Ref{}, w.s.spaceError(err)
	}
	w.taken = append(w.taken, run{fresh.Pgid, 1})
	return fresh, nil
}

func (w *writer) Renumber(ref pager.Ref) (fresh pager.Ref, done bool, err error) {
	if ref.Epoch < w.s.epoch || w.Owned(ref) {
		return ref, false, nil
	}
	if w.s.pg.InFrame(ref.Pgid) {
		fresh, _, err = w.Edit(ref)
		return fresh, err == nil, err
	}
	fresh, done, err = w.s.pg.Renumber(ref, w.s.epoch, w.owner)
	if err != nil {
		return ref, false, w.s.spaceError(err)
	}
	if !done {
		return ref, false, nil
	}
	w.taken = append(w.taken, run{fresh.Pgid, 1})
	return fresh, true, w.Free(ref)
}

// InPlace is where to keep what is overwritten in pages of earlier transactions; nil: they are copied. It is settled when the
// transaction changes its first page: versions that will be visible later, with a sync, must not be any more.
func (w *writer) InPlace() *pager.Undo {
	if w.mayUndo {
		w.mayUndo = false
		s := w.s
		s.queueMu.Lock()
		seen := len(s.queue) == 0
		s.queueMu.Unlock()
		if seen && s.pg.Undo().Open(s.epoch, w.first, s.holders) {
			w.undo = s.pg.Undo()
		}
	}
	if w.undo != nil && w.undo.Spent() {
		w.undo = nil
	}
	return w.undo
}

// noUndo makes the transaction copy pages from now on.
func (w *writer) noUndo() { w.mayUndo, w.undo = false, nil }

func (w *writer) New(kind pager.Kind, level uint8) (pager.Ref, []byte, error) {
	ref, b, err := w.take()
	if err != nil {
		return ref, nil, err
	}
	clear(b)
	pager.WriteHeader(b, pager.Header{Pgid: ref.Pgid, Epoch: ref.Epoch, Kind: kind, Level: level})
	return ref, b, nil
}

// take gets a page with a frame, content unknown.
func (w *writer) take() (pager.Ref, []byte, error) {
	if n := len(w.spare); n > 0 {
		id := w.spare[n-1]
		w.spare = w.spare[:n-1]
		b, err := w.s.pg.Again(id, w.owner)
		return pager.Ref{Pgid: id, Epoch: w.s.epoch}, b, err
	}
	id, b, err := w.s.pg.New(w.owner)
	if err != nil {
		return pager.Ref{}, nil, w.s.spaceError(err)
	}
	w.taken = append(w.taken, run{id, 1})
	return pager.Ref{Pgid: id, Epoch: w.s.epoch}, b, nil
}

// Free gives a page back. A page of this transaction that no savepoint can need is taken again next; every other one
// waits for the commit.
func (w *writer) Free(ref pager.Ref) error { return w.free(ref, 1) }

func (w *writer) free(ref pager.Ref, n uint32) error {
	owner := w.s.pg.Owner(ref.Pgid)
	if invariant.On && ref.Epoch > w.s.epoch {
		invariant.Fail("txn: freed page %v is of the future", ref)
	}
	if owner == w.owner && n == 1 && len(w.saves) == 0 {
		w.s.pg.SetOwner(ref.Pgid, 0)
		w.spare = append(w.spare, ref.Pgid)
		return nil
	}
	if uint64(len(w.freed)) >= w.s.pg.Pages() { // A damaged tree can come to a page by many ways, and to all below it.
		return badfile.Page(w.s.path, uint64(ref.Pgid), -1, "it is freed, and so are as many pages as there are")
	}
	if err := w.s.pg.Touch(ref.Pgid, uint64(n)); err != nil {
		return err
	}
	w.freed = append(w.freed, freedRun{})
	f := &w.freed[len(w.freed)-1] // field by field: a literal would be made elsewhere and copied, which waits for it to be there
	f.id, f.n, f.epoch, f.birth, f.own = ref.Pgid, n, ref.Epoch, owner, owner >= w.first
	return nil
}

func (w *writer) NewExtent(value []byte) (pager.Ref, error) {
	ref, n, err := w.s.pg.NewExtent(w.s.epoch, w.owner, value, w.names(len(value)))
	if n > 0 {
		w.taken = append(w.taken, run{ref.Pgid, uint32(n)})
	}
	switch {
	case err != nil && n == 0: // nothing was written yet
		return ref, w.s.spaceError(err)
	case err != nil:
		return ref, w.s.dataError(err)
	}
	w.extent = ref
	return ref, nil
}

func (w *writer) FreeExtent(ref pager.Ref, size int) error {
	n := len(w.freed)
	err := w.free(ref, uint32(pager.ExtentPages(size, w.PageSize())))
	if err == nil && len(w.freed) > n {
		w.freed[n].named = size >= w.s.nameFrom()
	}
	return err
}

// names says whether a value of this size is named by the log, and not repeated there. What waits for no sync cannot be: its record
// might survive a power cut, and the extent not.
func (w *writer) names(size int) bool { return size >= w.s.nameFrom() && !w.lazy && !w.silent }

// nameFraction of a segment is the least size of a value that the log names: below, a second sync costs more than a second write.
const nameFraction = 16

// nameFrom is that size, in bytes: never one that fits into a page.
func (s *Store) nameFrom() int { return int(max(s.segment/nameFraction, int64(s.pg.PageSize()))) }

// spill writes the transaction's pages early if frames are short. It is called between operations, when nobody holds
// a page. Looking for pages to write costs a look at all that were taken: after each look, frames have to grow by a
// share of the cache before the next.
func (w *writer) spill() error {
	if w.s.pg.FrameBytes() <= w.spillOver || w.s.o.ReadOnly {
		return nil
	}
	var ids []pager.Pgid
	for _, r := range w.taken {
		if r.n == 1 && w.s.pg.Owner(r.id) >= w.first && w.s.pg.InFrame(r.id) {
			ids = append(ids, r.id)
		}
	}
	share := w.s.o.CacheBytes / 8
	if int64(len(ids))*int64(w.PageSize()) < share {
		w.spillOver = w.s.pg.FrameBytes() + share // the frames are someone else's
		return nil
	}
	w.mods++
	err := w.s.dataError(w.s.pg.Spill(ids))
	w.spillOver = max(w.s.o.CacheBytes, w.s.pg.FrameBytes()+share)
	return err
}

// behindBytes of leaves at most are written at a time by spillBehind.
const behindBytes = 1 << 20

// spillBehind writes leaves early that a transaction which goes through its trees from left to right has left behind: the disk is at
// work beside it, and their frames come back while they are in the processor's cache. It is called between operations. A leaf
// that is changed after all gets a frame again.
func (w *writer) spillBehind() error {
	most := int(min(behindBytes, w.s.o.CacheBytes/16)) / w.PageSize()
	newest := most/16 + 1 // they are still being changed
	if len(w.taken)-w.behind < most+newest || w.s.o.ReadOnly {
		return nil
	}
	to := len(w.taken) - newest
	var ids []pager.Pgid
	for _, r := range w.taken[w.behind:to] {
		if r.n != 1 || w.s.pg.Owner(r.id) < w.first || !w.s.pg.InFrame(r.id) {
			continue
		}
		b, err := w.Page(pager.Ref{Pgid: r.id, Epoch: w.s.epoch})
		if err != nil {
			return err
		}
		if h := pager.ReadHeader(b); h.Kind == pager.KindLeaf {
			ids = append(ids, r.id)
		}
	}
	w.behind = to
	if len(ids) == 0 {
		return nil
	}
	w.mods++
	return w.s.dataError(w.s.pg.Spill(ids))
}

// rollback gives back every page that the transaction took. The log has taken back what it knows of it.
func (w *writer) rollback() {
	w.scout.halt()
	if w.flushed > 0 && !w.ahead.logged {
		w.s.log.Abort()
	}
	w.s.pg.Undo().Rollback()
	w.giveBack(0)
	w.finish()
}

// giveBack returns the pages taken since the n-th to the pager.
func (w *writer) giveBack(n int) {
	for _, r := range w.taken[n:] {
		if err := w.s.pg.Unused(r.id, uint64(r.n)); err != nil {
			_ = w.s.poison(fmt.Errorf("give page %d back: %w", r.id, err))
		}
	}
	w.taken = w.taken[:n]
}

// finish lets go of what must not outlive the transaction, and of buffers that grew large.
func (w *writer) finish() {
	w.tx, w.kept = nil, nil
	if cap(w.redo) > maxKeptBuffer {
		w.redo = nil
	}
	if cap(w.taken)*16 > maxKeptBuffer {
		w.taken = nil
	}
	if cap(w.freed)*48 > maxKeptBuffer {
		w.freed = nil
	}
}

const maxKeptBuffer = 4 << 20
