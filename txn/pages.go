package txn

import (
	"errors"
	"slices"
	"sync"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/pager"
)

// A pageWriter is the btree.Writer of a transaction: it allocates, copies and frees pages. The
// writer has one, and so has each worker of a parallel apply: see parallelApplier.
type pageWriter struct {
	pager.View
	s     *Store
	w     *writer
	owner uint64 // pages born under it may be changed in place; a savepoint starts a new one
	// firstOwner is the transaction's first owner. It owns the leaves that the transaction's record
	// names: no pageWriter changes these in place.
	firstOwner uint64
	saved      bool // the transaction has savepoints

	mayDelta bool              // leaves may get deltas
	mayUndo  bool              // pages may be changed in place, if the undo log can be opened
	undo     *pager.UndoWriter // nil until the undo log is open

	// allocated lists all allocated pages; spare, those of them that were freed again and may be
	// reused. freed are pages that the commit frees: pages of earlier states, and pages that this
	// transaction allocated before a savepoint.
	allocated allocatedPages
	spare     []pager.Pgid
	freed     []freedPages

	directRead bool   // cold pages are read into the frame where they are changed: see useDirectRead
	readBuf    []byte // page that ReadForUpdate read; nil before the first

	// allocMu guards the allocator while workers run concurrently; nil: there is one pageWriter.
	allocMu     *sync.Mutex
	cachedGroup freeMapGroup      // saves a lock of allocMu
	policy      pager.AllocPolicy // of the operation
}

type pageRun struct {
	id pager.Pgid
	n  uint32
}

// lockAllocator locks the allocator for a worker.
func (h *pageWriter) lockAllocator() {
	if h.allocMu != nil {
		h.allocMu.Lock()
	}
}

func (h *pageWriter) unlockAllocator() {
	if h.allocMu != nil {
		h.allocMu.Unlock()
	}
}

// usePurpose sets the purpose of allocations until the returned function runs.
func (h *pageWriter) usePurpose(p pager.Purpose) (end func()) {
	before := h.policy.Purpose
	h.policy.Purpose = p
	return func() { h.policy.Purpose = before }
}

// purposeOf is the purpose of a change's pages: operations that free space are never refused.
func purposeOf(c *Change) pager.Purpose {
	if c.Delete {
		return pager.ForDelete
	}
	return pager.ForPut
}

// spaceError is Store.spaceError. A worker's error is wrapped instead, and the transaction's own
// goroutine converts it: Store.spaceError may call a callback of the user.
func (h *pageWriter) spaceError(err error) error {
	if h.allocMu != nil {
		return &allocError{err}
	}
	return h.s.spaceError(err)
}

// allocError says that a worker could not allocate a page.
type allocError struct{ err error }

func (e *allocError) Error() string { return e.err.Error() }

// The exported methods below, and those of View, implement btree.Writer.
func (h *pageWriter) Owned(ref pager.Ref) bool {
	return ref.Epoch == h.s.epoch && h.s.pg.Pool.Owner(ref.Pgid) == h.owner
}

func (h *pageWriter) Edit(ref pager.Ref, read []byte) (pager.Ref, []byte, error) {
	if read != nil {
		return h.copyOf(ref, read, nil)
	}
	if h.Owned(ref) {
		b, err := h.frame(ref)
		return ref, b, err
	}
	if h.directRead && h.View.Cold(ref) {
		return h.editCold(ref)
	}
	old, changes, err := h.Leaf(ref)
	if err != nil {
		return pager.Ref{}, nil, err
	}
	return h.copyOf(ref, old, changes)
}

// copyOf copies a page and merges its delta, nil for none, into the copy.
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

// editCold is Edit of a cold page: it is read from the file into its new frame.
func (h *pageWriter) editCold(ref pager.Ref) (pager.Ref, []byte, error) {
	fresh, b, err := h.allocate()
	if err != nil {
		return pager.Ref{}, nil, err
	}
	if err := h.s.pg.Reader.ReadCold(ref, b); err != nil {
		return pager.Ref{}, nil, err
	}
	pager.SetRef(b, fresh)
	return fresh, b, h.Free(ref)
}

func (h *pageWriter) Cold(ref pager.Ref) bool {
	return h.directRead && !h.Owned(ref) && h.View.Cold(ref)
}

// ReadForUpdate reads a page into the buffer of the pageWriter. Without a map of the file that
// gains nothing, and the page comes from the pager's cache.
func (h *pageWriter) ReadForUpdate(ref pager.Ref) ([]byte, error) {
	if !h.s.pg.Mapped() {
		return h.Page(ref)
	}
	if h.readBuf == nil {
		h.readBuf = make([]byte, h.PageSize())
	}
	return h.readBuf, h.s.pg.Reader.ReadCold(ref, h.readBuf)
}

func (h *pageWriter) frame(ref pager.Ref) ([]byte, error) {
	if h.allocMu != nil && !h.s.pg.Pool.InFrame(ref.Pgid) {
		h.lockAllocator()
		defer h.unlockAllocator()
	}
	return h.s.pg.Frame(ref, h.View)
}

// CanDelta allows deltas for stores that do not fit into the frames between two checkpoints. In
// smaller stores each leaf gets so many changes that a frame at once costs less.
func (h *pageWriter) CanDelta(ref pager.Ref) (most int) {
	if !h.mayDelta || h.allocMu == nil && !h.hasDeltaMemory() || !h.s.pg.Pool.CanDelta(ref, h.s.epoch) {
		return 0
	}
	return h.s.pg.Pool.MaxDelta()
}

// hasDeltaMemory says whether deltas have memory left. Writer lock.
func (h *pageWriter) hasDeltaMemory() bool {
	return h.s.pg.Pool.DeltaBytes() <= h.s.checkpointer.fullFrames()
}

func (h *pageWriter) DeltaBase(ref pager.Ref) (base pager.Ref, b, changes []byte, err error) {
	return h.View.DeltaBase(ref, h.s.epoch)
}

func (h *pageWriter) StoreDelta(ref, base pager.Ref, changes []byte) (pager.Ref, error) {
	h.lockAllocator()
	fresh, err := h.s.pg.StoreDelta(ref, base, h.s.epoch, h.owner, changes, h.policy)
	h.unlockAllocator()
	if err != nil {
		return pager.Ref{}, h.spaceError(err)
	}
	if fresh == ref {
		return ref, nil
	}
	h.allocated.push(pageRun{fresh.Pgid, 1})
	if ref.IsZero() {
		return fresh, nil
	}
	n := len(h.freed)
	if err := h.Free(ref); err != nil {
		return pager.Ref{}, err
	}
	if len(h.freed) > n {
		h.freed[n].deltaBase = ref == base
	}
	return fresh, nil
}

// Reassign moves a page to a new page number during compaction, where there are no workers.
func (h *pageWriter) Reassign(ref pager.Ref) (fresh pager.Ref, done bool, err error) {
	if ref.Epoch < h.s.epoch || h.Owned(ref) {
		return ref, false, nil
	}
	if h.s.pg.Pool.InFrame(ref.Pgid) {
		fresh, _, err = h.Edit(ref, nil)
		return fresh, err == nil, err
	}
	fresh, done, err = h.s.pg.Reassign(ref, h.s.epoch, h.owner, h.policy)
	if err != nil {
		return ref, false, h.spaceError(err)
	}
	if !done {
		return ref, false, nil
	}
	h.allocated.push(pageRun{fresh.Pgid, 1})
	return fresh, true, h.Free(ref)
}

// MoveExtent copies the value of an extent to the lowest place where it fits, if that is below.
func (h *pageWriter) MoveExtent(ref pager.Ref, size int) (fresh pager.Ref, done bool, err error) {
	value, err := h.Extent(ref, size)
	if err != nil {
		return ref, false, err
	}
	before := h.policy
	h.policy.Below = ref.Pgid
	e, err := h.startExtent(size)
	h.policy = before
	if errors.Is(err, pager.ErrNoneBelow) {
		return ref, false, nil
	}
	if err == nil {
		err = h.s.dataError(e.Write(value))
	}
	if err != nil {
		return ref, false, err
	}
	return e.Ref, true, h.FreeExtent(ref, size)
}

// Undo returns the undo writer for in-place changes of pages of earlier transactions; nil: pages
// are copied. The decision falls when the transaction changes its first page: all versions must be
// visible then, since one that waits for a sync would become visible with the changes in it.
func (h *pageWriter) Undo() tree.UndoWriter {
	if s := h.s; h.mayUndo {
		h.mayUndo = false
		if s.queue.empty() && s.pg.Undo.Open(s.epoch, h.firstOwner, s.reclaimer.heldSnapshots) {
			h.undo = s.pg.Undo.Own()
		}
	}
	if h.undo == nil || h.undo.Full() {
		h.undo = nil
		return nil // not a nil *pager.UndoWriter
	}
	return h.undo
}

// disableUndo makes the transaction copy pages instead of changing them in place.
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

// allocBatch is how many pages a worker allocates at a time: it takes the contended allocator lock
// less often, and the page table entries of its pages share cache lines that no other processor
// writes.
const allocBatch = 8

// allocate returns a page with a frame. The frame's content is undefined.
func (h *pageWriter) allocate() (pager.Ref, []byte, error) {
	if n := len(h.spare); n > 0 {
		id := h.spare[n-1]
		h.spare = h.spare[:n-1]
		b, err := h.reuse(id)
		return pager.Ref{Pgid: id, Epoch: h.s.epoch}, b, err
	}
	h.lockAllocator()
	defer h.unlockAllocator()
	id, b, err := h.s.pg.New(h.owner, h.policy)
	if err != nil {
		return pager.Ref{}, nil, h.spaceError(err)
	}
	h.allocated.push(pageRun{id, 1})
	if h.allocMu != nil {
		h.allocateSpare(allocBatch - 1)
	}
	return pager.Ref{Pgid: id, Epoch: h.s.epoch}, b, nil
}

// reuse gives a spare page a new owner. A worker takes the lock only if the page has lost its
// frame.
func (h *pageWriter) reuse(id pager.Pgid) ([]byte, error) {
	if h.allocMu != nil && !h.s.pg.Pool.InFrame(id) {
		h.lockAllocator()
		defer h.unlockAllocator()
	}
	return h.s.pg.Reuse(id, h.owner)
}

// allocateSpare allocates n more pages into spare, if the free list has them: growth of the file
// and the reserve for deletions are for pages that are needed now. The commit frees unused spare
// pages.
func (h *pageWriter) allocateSpare(n int) {
	if !h.s.pg.Alloc.HasFreePages(uint64(n), h.policy) {
		return
	}
	from := len(h.spare)
	for range n {
		id, _, err := h.s.pg.New(0, h.policy)
		if err != nil {
			break // allocate returns the error when a page is needed
		}
		h.allocated.push(pageRun{id, 1})
		h.spare = append(h.spare, id)
	}
	slices.Reverse(h.spare[from:]) // allocate takes the last one first
}

// errExtent is a bug: only the transaction's own goroutine writes large values.
var errExtent = errors.New("txn: a worker has a large value to store")

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
	h.w.lastExtent = extentPlace{ref: e.Ref, size: len(value), sum: e.Sum}
	return e.Ref, nil
}

// startExtent allocates the pages of a large value. Nothing is written yet.
func (h *pageWriter) startExtent(size int) (*pager.ExtentWriter, error) {
	e, err := h.s.pg.StartExtent(h.s.epoch, h.owner, size, h.w.logsByRef(size), h.policy)
	if pager.NoSpace(err) && h.s.logOrder && len(h.spare) > 0 {
		if err := h.freeSpare(); err != nil {
			return nil, err
		}
		e, err = h.s.pg.StartExtent(h.s.epoch, h.owner, size, false, h.policy)
	}
	if errors.Is(err, pager.ErrNoneBelow) {
		return nil, err
	}
	if err != nil {
		return nil, h.s.spaceError(err)
	}
	h.allocated.push(pageRun{e.Ref.Pgid, uint32(e.Pages)})
	return e, nil
}
