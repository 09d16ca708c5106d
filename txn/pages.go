package txn

import (
	"errors"
	"slices"
	"sync"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/invariant"
	"github.com/ebbkv/ebb/pager"
)

// A hand changes trees for a transaction, and holds the pages that it has taken for that and given
// up. The writer has one; of a large change others carry out a part, beside it: see hands.
type pageWriter struct {
	s     *Store
	w     *writer
	base  pager.Epoch // of the state that the transaction began from
	owner uint64      // pages born under it may be changed in place; a savepoint takes a new one
	// the transaction's first owner, of leaves that its record names: nobody changes them in place
	firstOwner uint64
	saved      bool // there are savepoints

	mayDelta bool              // leaves may get patches
	mayUndo  bool              // pages may be changed in place, if the undo can be opened
	undo     *pager.UndoWriter // of the undo, once it is opened

	// allocated lists every page that was taken, spare those of them that were given up again and
	// may be taken anew. freed are pages to give back at commit: of earlier states, or the
	// transaction's own from before a savepoint.
	allocated takenPages
	spare     []pager.Pgid
	freed     []deferredFree

	directRead bool   // pages that nobody has looked at are read where they are changed: see spares
	readBuf    []byte // the page that Draft has read; nil: there was none yet

	// allocMu is held while what all pages have in common is changed, by hands that are at work
	// beside each other; nil: there is only one.
	allocMu      *sync.Mutex
	cachedGroup  freeMapGroup // so that the lock is not asked for
	mayOverdraft bool         // what is carried out frees space: see pager.Overdraft. For hands that share.
}

type pageRun struct {
	id pager.Pgid
	n  uint32
}

// deferredFree is pages that some state reaches and newer ones do not.
type deferredFree struct {
	id              pager.Pgid
	birth           uint64      // serial under which they were born; 0: before the store was opened
	serial          uint64      // first version that does not reach them
	n               uint32      // 0: only the frame goes, the page stays
	epoch           pager.Epoch // of birth
	afterCheckpoint pager.Epoch // first checkpoint that does not reach them
	bornInTx        bool        // born in the transaction that frees them
	logReferenced   bool        // perhaps, by the log
	deltaBase       bool        // of a patched page: it stays until that has been written
}

// lockAllocator takes what all pages have in common, until unshare.
func (h *pageWriter) lockAllocator() {
	if h.allocMu != nil {
		h.allocMu.Lock()
		h.s.pg.Overdraft(h.mayOverdraft)
	}
}

func (h *pageWriter) unlockAllocator() {
	if h.allocMu != nil {
		h.allocMu.Unlock()
	}
}

// spaceError is that of the store, but that a hand which works beside others leaves it to the
// transaction: the store may tell its user.
func (h *pageWriter) spaceError(err error) error {
	if h.allocMu != nil {
		return &allocError{err}
	}
	return h.s.spaceError(err)
}

// allocError is why there was no page for a hand.
type allocError struct{ err error }

func (e *allocError) Error() string { return e.err.Error() }

// PageSize, Page, Leaf, Extent, Ask, Near, Owned, Edit, Unmet, Draft, EditRead, Patchable, Base,
// Patch, NewDelta, Renumber, Undo, New, Free, NewExtent and FreeExtent make it a btree.Writer.
func (h *pageWriter) PageSize() int { return h.s.pg.PageSize() }

func (h *pageWriter) Page(ref pager.Ref) ([]byte, error) { return h.s.pg.Page(ref, h.base) }

func (h *pageWriter) Leaf(ref pager.Ref) (b, changes []byte, err error) {
	return h.s.pg.Leaf(ref, h.base)
}

func (h *pageWriter) Extent(ref pager.Ref, size int) ([]byte, error) { return h.s.pg.Extent(ref, size) }

func (h *pageWriter) PrefetchSlot(ref pager.Ref) { h.s.pg.PrefetchSlot(ref) }

func (h *pageWriter) Peek(ref pager.Ref, n int) []byte { return h.s.pg.Peek(ref, h.base, n) }

// ReadAhead has pages read that are going to be looked at: see pager.ReadAhead.
func (h *pageWriter) ReadAhead(refs []pager.Ref) { h.s.pg.ReadAhead(refs, h.base) }

// ReadsAhead reports whether that does anything.
func (h *pageWriter) ReadsAhead() bool { return h.s.pg.ReadsAhead() }

// ReadSoon has a page read that is going to be looked at.
func (h *pageWriter) ReadSoon(ref pager.Ref) { h.s.pg.ReadSoon(ref, h.base) }

func (h *pageWriter) Owned(ref pager.Ref) bool {
	return ref.Epoch == h.s.epoch && h.s.pg.Owner(ref.Pgid) == h.owner
}

func (h *pageWriter) Edit(ref pager.Ref) (pager.Ref, []byte, error) {
	if h.Owned(ref) {
		b, err := h.frame(ref)
		return ref, b, err
	}
	if h.directRead && h.s.pg.Cold(ref, h.base) {
		return h.editCold(ref)
	}
	old, changes, err := h.Leaf(ref)
	if err != nil {
		return pager.Ref{}, nil, err
	}
	return h.copyOf(ref, old, changes)
}

// copyOf is Edit of a page that is made of an older one and its changes, nil for none.
func (h *pageWriter) copyOf(ref pager.Ref, old, changes []byte) (pager.Ref, []byte, error) {
	fresh, b, err := h.allocate()
	if err != nil {
		return pager.Ref{}, nil, err
	}
	if err := h.s.pg.MergeDelta(fresh, b, old, changes); err != nil {
		return pager.Ref{}, nil, err
	}
	return fresh, b, h.Free(ref)
}

// editCold is Edit of a page that is read where it is going to be.
func (h *pageWriter) editCold(ref pager.Ref) (pager.Ref, []byte, error) {
	fresh, b, err := h.allocate()
	if err != nil {
		return pager.Ref{}, nil, err
	}
	if err := h.s.pg.ReadCold(ref, b); err != nil {
		return pager.Ref{}, nil, err
	}
	pager.SetRef(b, fresh)
	return fresh, b, h.Free(ref)
}

func (h *pageWriter) Cold(ref pager.Ref) bool {
	return h.directRead && !h.Owned(ref) && h.s.pg.Cold(ref, h.base)
}

// ReadForUpdate reads a page into memory of the hand's own. A page that is not mapped is no nearer
// there than where others find it, too.
func (h *pageWriter) ReadForUpdate(ref pager.Ref) ([]byte, error) {
	if !h.s.pg.Mapped() {
		return h.Page(ref)
	}
	if h.readBuf == nil {
		h.readBuf = make([]byte, h.PageSize())
	}
	return h.readBuf, h.s.pg.ReadCold(ref, h.readBuf)
}

func (h *pageWriter) EditRead(ref pager.Ref, draft []byte) (pager.Ref, []byte, error) {
	return h.copyOf(ref, draft, nil)
}

func (h *pageWriter) frame(ref pager.Ref) ([]byte, error) {
	if h.allocMu != nil && !h.s.pg.InFrame(ref.Pgid) {
		h.lockAllocator()
		defer h.unlockAllocator()
	}
	return h.s.pg.Frame(ref, h.base)
}

// CanDelta gives patches to leaves of stores of which not all fit into the frames between two
// checkpoints: in others every leaf gets so many rows that it may as well have a frame at once.
func (h *pageWriter) CanDelta(ref pager.Ref) (most int) {
	if !h.mayDelta || h.allocMu == nil && !h.s.mayPatch() || !h.s.pg.CanDelta(ref, h.s.epoch) {
		return 0
	}
	return h.s.pg.MostPatch()
}

// mayDelta says that patches have not taken all of their memory. Writer lock.
func (s *Store) mayPatch() bool { return s.pg.PatchBytes() <= s.fullFrames() }

func (h *pageWriter) DeltaBase(ref pager.Ref) (base pager.Ref, b, changes []byte, err error) {
	return h.s.pg.DeltaBase(ref, h.base, h.s.epoch)
}

func (h *pageWriter) StoreDelta(ref, base pager.Ref, changes []byte) (pager.Ref, error) {
	h.lockAllocator()
	fresh, err := h.s.pg.StoreDelta(ref, base, h.s.epoch, h.owner, changes)
	h.unlockAllocator()
	if err != nil {
		return pager.Ref{}, h.spaceError(err)
	}
	if fresh == ref {
		return ref, nil
	}
	h.allocated.push(pageRun{fresh.Pgid, 1})
	n := len(h.freed)
	if err := h.Free(ref); err != nil {
		return pager.Ref{}, err
	}
	if len(h.freed) > n {
		h.freed[n].deltaBase = ref == base
	}
	return fresh, nil
}

func (h *pageWriter) NewDelta(base pager.Ref, changes []byte) (pager.Ref, error) {
	h.lockAllocator()
	fresh, err := h.s.pg.NewDelta(base, h.s.epoch, h.owner, changes)
	h.unlockAllocator()
	if err != nil {
		return pager.Ref{}, h.spaceError(err)
	}
	h.allocated.push(pageRun{fresh.Pgid, 1})
	return fresh, nil
}

// Reassign is for a writer that is packing, by itself.
func (h *pageWriter) Reassign(ref pager.Ref) (fresh pager.Ref, done bool, err error) {
	if ref.Epoch < h.s.epoch || h.Owned(ref) {
		return ref, false, nil
	}
	if h.s.pg.InFrame(ref.Pgid) {
		fresh, _, err = h.Edit(ref)
		return fresh, err == nil, err
	}
	fresh, done, err = h.s.pg.Reassign(ref, h.s.epoch, h.owner)
	if err != nil {
		return ref, false, h.spaceError(err)
	}
	if !done {
		return ref, false, nil
	}
	h.allocated.push(pageRun{fresh.Pgid, 1})
	return fresh, true, h.Free(ref)
}

// Undo is where to keep what is overwritten in pages of earlier transactions; nil: they are copied.
// It is settled when the transaction changes its first page: versions that will be visible later,
// with a sync, must not be any more.
func (h *pageWriter) Undo() *pager.UndoWriter {
	if h.mayUndo {
		h.openUndo()
	}
	if h.undo != nil && h.undo.Full() {
		h.undo = nil
	}
	return h.undo
}

func (h *pageWriter) openUndo() {
	h.mayUndo = false
	s := h.s
	s.queueMu.Lock()
	seen := len(s.queue) == 0
	s.queueMu.Unlock()
	if seen && s.pg.Undo().Open(s.epoch, h.firstOwner, s.heldSnapshots) {
		h.undo = s.pg.Undo().Own()
	}
}

// disableUndo makes the transaction copy pages from now on.
func (h *pageWriter) disableUndo() { h.mayUndo, h.undo = false, nil }

func (h *pageWriter) New(kind pager.Kind, level uint8) (pager.Ref, []byte, error) {
	ref, b, err := h.allocate()
	if err != nil {
		return ref, nil, err
	}
	clear(b)
	pager.WriteHeader(b, pager.Header{Pgid: ref.Pgid, Epoch: ref.Epoch, Kind: kind, Level: level})
	return ref, b, nil
}

// allocBatch is how many pages a hand takes at a time that works beside others: it has the lock
// that all of them want less often, and what the table of pages says of its pages lies together,
// where no other processor writes.
const allocBatch = 8

// allocate gets a page with a frame, content unknown.
func (h *pageWriter) allocate() (pager.Ref, []byte, error) {
	if n := len(h.spare); n > 0 {
		id := h.spare[n-1]
		h.spare = h.spare[:n-1]
		b, err := h.reuse(id)
		return pager.Ref{Pgid: id, Epoch: h.s.epoch}, b, err
	}
	h.lockAllocator()
	defer h.unlockAllocator()
	id, b, err := h.s.pg.New(h.owner)
	if err != nil {
		return pager.Ref{}, nil, h.spaceError(err)
	}
	h.allocated.push(pageRun{id, 1})
	if h.allocMu != nil {
		h.allocateSpare(allocBatch - 1)
	}
	return pager.Ref{Pgid: id, Epoch: h.s.epoch}, b, nil
}

// reuse gives a page that was given up another life. Who shares needs the lock only for one that
// has lost its frame.
func (h *pageWriter) reuse(id pager.Pgid) ([]byte, error) {
	if h.allocMu != nil && !h.s.pg.InFrame(id) {
		h.lockAllocator()
		defer h.unlockAllocator()
	}
	return h.s.pg.Reuse(id, h.owner)
}

// allocateSpare takes so many pages that nobody needs yet, if they are there: what would have to be
// asked of the disk, and what is kept for deletions, is for who needs it. Those that are left go
// back with the commit.
func (h *pageWriter) allocateSpare(n int) {
	if !h.s.pg.HasFreePages(uint64(n)) {
		return
	}
	from := len(h.spare)
	for range n {
		id, _, err := h.s.pg.New(0)
		if err != nil {
			break // Who needs one is told.
		}
		h.allocated.push(pageRun{id, 1})
		h.spare = append(h.spare, id)
	}
	slices.Reverse(h.spare[from:]) // the last one is taken first
}

// Free gives a page back. A page of this transaction that no savepoint can need is taken again
// next; every other one waits for the commit.
func (h *pageWriter) Free(ref pager.Ref) error { return h.free(ref, 1) }

func (h *pageWriter) free(ref pager.Ref, n uint32) error {
	owner := h.s.pg.Owner(ref.Pgid)
	if invariant.On && ref.Epoch > h.s.epoch {
		invariant.Fail("txn: freed page %v is of the future", ref)
	}
	if owner != 0 && ref.Epoch <= h.s.openedEpoch {
		// The file has two names for a page, which was given back by the other one. Nobody has to
		// have read it by this one.
		return badfile.Page(
			h.s.path,
			uint64(ref.Pgid),
			-1,
			"freed as a page of epoch %d, and it has been born again",
			ref.Epoch,
		)
	}
	if owner == h.owner && n == 1 && !h.saved {
		h.s.pg.SetOwner(ref.Pgid, 0)
		h.spare = append(h.spare, ref.Pgid)
		return nil
	}
	if err := h.loadFreeMapGroup(ref, n); err != nil {
		return err
	}
	h.freed = append(h.freed, deferredFree{})
	// field by field: a literal would be made elsewhere and copied, which waits for it to be there
	f := &h.freed[len(h.freed)-1]
	f.id, f.n, f.epoch, f.birth, f.bornInTx = ref.Pgid, n, ref.Epoch, owner, owner >= h.firstOwner
	f.logReferenced = owner == h.firstOwner || // or of an earlier transaction since the last checkpoint
		ref.Epoch == h.s.epoch && n == 1 && h.s.pg.Written(ref.Pgid)
	return nil
}

// loadFreeMapGroup sees to it that the pages can be freed.
func (h *pageWriter) loadFreeMapGroup(ref pager.Ref, n uint32) error {
	if h.allocMu != nil && n == 1 && h.cachedGroup.contains(ref.Pgid, len(h.freed)) {
		return nil
	}
	h.lockAllocator()
	defer h.unlockAllocator()
	// A damaged tree can come to a page by many ways, and to all below it.
	if uint64(len(h.freed)) >= h.s.pg.Pages() {
		return badfile.Page(h.s.path, uint64(ref.Pgid), -1, "it is freed, and so are as many pages as there are")
	}
	if err := h.s.pg.Touch(ref.Pgid, uint64(n)); err != nil {
		return err
	}
	if h.allocMu != nil {
		h.cachedGroup.from, h.cachedGroup.to = h.s.pg.GroupOf(ref.Pgid)
		h.cachedGroup.pages = int(h.s.pg.Pages())
	}
	return nil
}

// freeMapGroup are the pages of one group of the free map, from up to to, that may be freed as long
// as fewer than pages have been.
type freeMapGroup struct {
	from, to pager.Pgid
	pages    int
}

func (t *freeMapGroup) contains(id pager.Pgid, freed int) bool {
	return id >= t.from && id < t.to && freed < t.pages
}

// errExtent is a mistake of hands: large values are for the writer's own.
var errExtent = errors.New("txn: a hand beside others has a large value to store")

func (h *pageWriter) NewExtent(value []byte) (pager.Ref, error) {
	if h.allocMu != nil {
		return pager.Ref{}, errExtent
	}
	e, err := h.startExtent(len(value))
	if err != nil {
		return pager.Ref{}, err
	}
	if err := e.Write(value); err != nil {
		return e.Ref, h.s.dataError(err)
	}
	h.w.lastExtent = e.Ref
	return e.Ref, nil
}

// startExtent takes the pages for a value, of which nothing is written yet.
func (h *pageWriter) startExtent(size int) (*pager.ExtentWriter, error) {
	e, err := h.s.pg.StartExtent(h.s.epoch, h.owner, size, h.w.names(size))
	if pager.NoSpace(err) && h.s.logOrder && len(h.spare) > 0 {
		if err := h.freeSpare(); err != nil {
			return nil, err
		}
		e, err = h.s.pg.StartExtent(h.s.epoch, h.owner, size, false)
	}
	if err != nil {
		return nil, h.s.spaceError(err)
	}
	h.allocated.push(pageRun{e.Ref.Pgid, uint32(e.Pages)})
	return e, nil
}

func (h *pageWriter) FreeExtent(ref pager.Ref, size int) error {
	n, pages := len(h.freed), pager.ExtentPages(size, h.PageSize())
	if h.w.noLog && h.s.pg.Owner(ref.Pgid) == h.owner {
		if done, err := h.freeUnlogged(pageRun{ref.Pgid, uint32(pages)}); done || err != nil {
			return err
		}
	}
	err := h.free(ref, uint32(pages))
	if err == nil && len(h.freed) > n {
		h.freed[n].logReferenced = size >= h.s.nameFrom()
	}
	return err
}

// freeUnloggedWindow is how far back unused looks.
const freeUnloggedWindow = 64

// freeUnlogged gives pages back that the transaction has taken not long ago, for the next value,
// and says whether it has found them. It is for replay, which carries out the puts of a key one
// after the other: the run that it repeats had the pages of the one before back at each commit, and
// there may be no others. Nobody else has seen the value.
func (h *pageWriter) freeUnlogged(r pageRun) (done bool, err error) {
	back := freeUnloggedWindow
	if h.s.logOrder { // There is no room to spare.
		back = h.allocated.len()
	}
	if !h.allocated.remove(r, back) {
		return false, nil
	}
	return true, h.s.pg.Unused(r.id, uint64(r.n))
}

// freeSpare gives pages back that were given up: the run that a replay repeats had them back at
// each commit, for large values too.
func (h *pageWriter) freeSpare() error {
	spare := make(map[pager.Pgid]bool, len(h.spare))
	for _, id := range h.spare {
		spare[id] = true
		if err := h.s.pg.Unused(id, 1); err != nil {
			return err
		}
	}
	h.allocated.drop(spare)
	h.spare = h.spare[:0]
	return h.s.pg.Tight(true)
}
