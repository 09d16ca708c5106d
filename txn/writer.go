package txn

import (
	"fmt"
	"slices"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/pager"
)

// writer is the state of the open write transaction. The store has one, and each transaction reuses
// it, so that a small commit allocates next to nothing. The holder of the writer lock owns it.
type writer struct {
	pageWriter     // the transaction's own
	tx         *Tx // nil for maintenance
	trees      trees
	mods       uint64 // changes whenever a page may have changed under a cursor; never goes back

	// cursors are those of the trees put into last: trees of one family use different entries. They
	// are valid as long as mods is cursorsAt.
	cursors   [4]insertCursor
	cursorsAt uint64

	changed []TreeID // trees whose root may differ from the state before, with repetitions
	// mostChanged is the length at which repetitions are removed.
	mostChanged int
	nextID      TreeID
	trash       uint64
	mark        int64 // see Tx.SetMark
	// redo is the part of the commit's payload that is not in the log yet; flushed counts the bytes
	// that are.
	redo    []byte
	flushed int64
	dirty   bool // there is something to commit
	noLog   bool // nothing is logged
	// spillOver is the size of frames above which pages are spilled, mostFrames its lower bound.
	spillOver, mostFrames int64
	spilled               []pager.Pgid // buffer of pagesToSpill
	// Pages of a replay up to spillOwner are being written, those up to spilledOwner are written: see
	// replaySpill. freedInSpill were freed while they were being written.
	spillOwner, spilledOwner uint64
	freedInSpill             []pager.Pgid

	parallel   *parallelApplier // reused like the writer; nil before the first use
	submitted  submittedLog
	relaxed    bool        // the commit will not wait for a sync
	lastExtent extentPlace // newest extent
	refBytes   int64       // bytes of extents and leaves that the redo references
	syncFirst  bool        // an extent is among them: durable before the record is written

	filled int // leaves that ascending puts have filled

	leafRunPages uint64 // leaves that the redo references
	leafRunBuf   []byte // leaves of the run that is being built
	sums         []byte // their checksums

	puts    bool  // the transaction has puts: MaxBytes applies to it
	refused error // for lack of space: see Store.refused

	savepoints  []savepoint
	valueCopies []byte // memory of copyValue
}

type insertCursor struct {
	id TreeID
	tree.InsertCursor
}

func (w *writer) begin() {
	s := w.s
	s.serial += 2
	w.owner, w.firstOwner = s.serial, s.serial-1
	w.spillOwner, w.spilledOwner, w.freedInSpill = 0, 0, nil
	w.View = s.pg.Reader.View(s.head.base, pager.Newest)
	w.trees = s.head.trees.copy(w.trees.small[:0])
	w.allocated.reset()
	w.spare, w.freed = w.spare[:0], w.freed[:0]
	w.changed, w.savepoints = w.changed[:0], w.savepoints[:0]
	w.mostChanged = leastChanged
	w.nextID, w.trash, w.mark = s.head.nextID, s.head.trash, s.head.mark
	w.redo = append(w.redo[:0], make([]byte, redoHead)...)
	w.flushed, w.dirty, w.noLog = 0, false, false
	w.mods++
	w.setFrames(s.o.CacheBytes)
	w.tx = nil
	w.valueCopies = nil
	w.relaxed, w.refBytes, w.syncFirst, w.filled, w.leafRunPages = false, 0, false, 0, 0
	w.directRead = false
	w.saved, w.mayUndo, w.undo = false, false, nil
	w.mayDelta, w.submitted = false, submittedLog{}
	w.policy = pager.AllocPolicy{MostReusable: s.reclaimer.mostReusable(s.o.CacheBytes)}
	w.puts, w.refused = false, nil
	if s.o.MaxBytes > 0 && s.started {
		s.log.SetBound(0)
	}
}

// setFrames bounds the frames that the transaction may fill before its pages are spilled.
func (w *writer) setFrames(most int64) { w.spillOver, w.mostFrames = most, most }

// set records a tree's new root.
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
	if len(w.changed) >= w.mostChanged {
		slices.Sort(w.changed)
		w.changed = slices.Compact(w.changed)
		w.mostChanged = max(2*len(w.changed), leastChanged)
	}
}

// leastChanged is the shortest list of changed trees from which repetitions are removed.
const leastChanged = 256

// copyValue returns a copy of a small value that stays valid until the transaction ends. Large values
// are in extents: see Tx.Extent.
func (w *writer) copyValue(b []byte) []byte {
	if len(b) > tree.MaxInline(w.PageSize(), 0) {
		return b
	}
	if len(b) == 0 {
		return []byte{}
	}
	if cap(w.valueCopies)-len(w.valueCopies) < len(b) {
		// Earlier copies keep the old chunk.
		w.valueCopies = make([]byte, 0, max(valueCopyChunk, len(b)))
	}
	at := len(w.valueCopies)
	w.valueCopies = append(w.valueCopies, b...)
	return w.valueCopies[at:len(w.valueCopies):len(w.valueCopies)]
}

const valueCopyChunk = 4 << 10

// logsByRef says whether the log references a value of this size instead of repeating it. A relaxed
// commit does not, since the extent has to be durable before its record is written, unless the
// value would take too much of what MaxBytes leaves for the log.
func (w *writer) logsByRef(size int) bool {
	if w.relaxed && (w.s.o.MaxBytes == 0 || int64(size) <= w.s.logShare()/logRefShare) {
		return false
	}
	return size >= w.s.logRefFrom() && !w.noLog
}

// logRefShare: a value of more than this part of the log's share is logged by reference.
const logRefShare = 4

// logRefFraction: a value of at least this part of a segment is logged by reference. Below, a
// second sync costs more than a second write.
const logRefFraction = 16

// logRefFrom is that size in bytes, never below a page.
func (s *Store) logRefFrom() int { return int(max(s.segment/logRefFraction, int64(s.pg.PageSize()))) }

// spill writes the transaction's pages to the file and frees their frames, if frames are short. The
// caller holds no page: it is between operations.
func (w *writer) spill() error {
	if !framesAreShort(w) {
		return nil
	}
	ids := pagesToSpill(w)
	if len(ids) == 0 {
		return nil
	}
	w.mods++
	if err := w.s.pg.WriteEarly(ids); err != nil {
		return w.s.dataError(err)
	}
	w.s.pg.FreeFrames(ids)
	w.spillOver = max(w.mostFrames, w.s.pg.Pool.FrameBytes()+w.mostFrames/spillFraction)
	return nil
}

// spillFraction: so many bytes of frames, as a fraction of mostFrames, repay a search for pages to
// spill, which visits all allocated ones.
const spillFraction = 8

func framesAreShort(w *writer) bool {
	return w.s.pg.Pool.FrameBytes() > w.spillOver && !w.s.o.ReadOnly
}

// pagesToSpill returns the transaction's pages with frames, valid until the next call, or none if
// they are few: before the next search frames have to grow.
func pagesToSpill(w *writer) []pager.Pgid {
	ids := w.spilled[:0]
	w.allocated.each(0, func(r pageRun) bool {
		if pg := w.s.pg; r.n == 1 && pg.Pool.Owner(r.id) >= w.firstOwner &&
			pg.Pool.InFrame(r.id) && !pg.Alloc.IsReusable(r.id) {
			ids = append(ids, r.id)
		}
		return true
	})
	w.spilled = ids
	share := w.mostFrames / spillFraction
	if int64(len(ids))*int64(w.PageSize()) < share {
		w.spillOver = w.s.pg.Pool.FrameBytes() + share // the frames are not this transaction's
		return nil
	}
	return ids
}

// rollback frees every page that the transaction allocated. If its record was submitted, the caller
// has revoked it.
func (w *writer) rollback() {
	w.s.pg.Alloc.ReleaseReplay(w.leafRunPages)
	if w.flushed > 0 && !w.submitted.logged {
		w.s.log.Abort()
	}
	w.s.pg.Undo.Rollback()
	w.freeAllocated(0)
	w.finish()
}

// freeAllocated frees the pages from the n-th allocated on.
func (w *writer) freeAllocated(n int) {
	w.allocated.each(n, func(r pageRun) bool {
		if err := w.s.pg.Unused(r.id, uint64(r.n)); err != nil {
			_ = w.s.fail(fmt.Errorf("free page %d: %w", r.id, err))
		}
		return true
	})
	w.allocated.cut(n)
}

// finish drops references that must not outlive the transaction, and large buffers.
func (w *writer) finish() {
	w.tx, w.valueCopies = nil, nil
	if cap(w.redo) > maxRedoBuffer {
		w.redo = nil
	}
	if cap(w.allocated.entries)*24 > maxRedoBuffer {
		w.allocated = allocatedPages{}
	}
	if cap(w.spilled)*8 > maxRedoBuffer {
		w.spilled = nil
	}
	if cap(w.freed)*48 > maxRedoBuffer {
		w.freed = nil
	}
}

const maxRedoBuffer = 4 << 20
