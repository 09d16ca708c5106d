package txn

import (
	"fmt"
	"slices"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/pager"
)

// writer is what the one open write transaction has done so far. The store has one, used again by
// each transaction, so that a small commit allocates next to nothing. It belongs to the holder of
// the writer lock.
type writer struct {
	pageWriter     // the transaction's own
	tx         *Tx // whose it is; nil for upkeep
	trees      trees
	mods       uint64 // changes whenever a page may have changed under a cursor; never goes back

	// cursors are for the trees that were put into last: those of one family have different places.
	// They hold as long as mods is cursorsAt.
	cursors   [4]insertCursor
	cursorsAt uint64

	changed []TreeID // trees whose root may differ from the state before, with repetitions
	// mostChanged of them are looked through for repetitions.
	mostChanged int
	nextID      TreeID
	trash       uint64
	// redo holds what the log does not have yet of the commit's payload; flushed counts what it
	// has.
	redo    []byte
	flushed int64
	dirty   bool // anything to commit
	noLog   bool // nothing is logged
	// spillOver is the size of frames above which pages are written early, and mostFrames the least
	// that it can be.
	spillOver, mostFrames int64
	spillScanned          int          // so many of taken were looked at by spillAppended
	spilled               []pager.Pgid // that were written early last: memory

	parallel   *parallelApplier // likewise
	submitted  submittedLog
	relaxed    bool      // the commit will not wait for a sync
	lastExtent pager.Ref // that was written last
	refBytes   int64     // bytes of values in extents, and of leaves, that the redo names
	syncFirst  bool      // a value is among them: durable before the record is written

	filled int // leaves that rows in order have filled and left behind

	leafRunPages uint64 // leaves that the redo names
	leafRunBuf   []byte // leaves that are being laid
	sums         []byte // their checksums

	puts    bool  // the transaction has put something: MaxBytes binds it
	refused error // for want of space: see Store.refused

	savepoints []savepoint
	keyCopies  []byte // copies handed out by keep
}

type insertCursor struct {
	id TreeID
	tree.InsertCursor
}

func (w *writer) begin() {
	s := w.s
	s.serial += 2
	w.owner, w.firstOwner = s.serial, s.serial-1
	w.base = s.head.base
	if s.head.trees.large != nil {
		w.trees = s.head.trees.copy()
	} else {
		w.trees = trees{small: append(w.trees.small[:0], s.head.trees.small...)}
	}
	w.allocated.reset()
	w.spare, w.freed = w.spare[:0], w.freed[:0]
	w.changed, w.savepoints = w.changed[:0], w.savepoints[:0]
	w.mostChanged = leastChanged
	w.nextID, w.trash = s.head.nextID, s.head.trash
	w.redo = append(w.redo[:0], make([]byte, redoHead)...)
	w.flushed, w.dirty, w.noLog = 0, false, false
	w.mods++
	w.setFrames(s.o.CacheBytes)
	w.spillScanned = 0
	w.tx = nil
	w.keyCopies = nil
	w.relaxed, w.refBytes, w.syncFirst, w.filled, w.leafRunPages = false, 0, false, 0, 0
	w.directRead = false
	w.saved, w.mayUndo, w.undo = false, false, nil
	w.mayDelta, w.submitted = false, submittedLog{}
	s.pg.Overdraft(false) // a fault in a page may have left it on
	s.pg.SetReuseShare(s.reuseShare())
	w.puts, w.refused = false, nil
	if s.o.MaxBytes > 0 && s.started {
		s.log.SetBound(0)
	}
}

// setFrames bounds the frames that the transaction may fill before its pages are written early.
func (w *writer) setFrames(most int64) { w.spillOver, w.mostFrames = most, most }

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
	if len(w.changed) >= w.mostChanged {
		slices.Sort(w.changed)
		w.changed = slices.Compact(w.changed)
		w.mostChanged = max(2*len(w.changed), leastChanged)
	}
}

// leastChanged is how many numbers of trees are noted at least before repetitions are looked for.
const leastChanged = 256

// copyKey returns a copy of a small value that stays as it is until the transaction ends. Large
// values lie in extents: see Tx.Extent.
func (w *writer) copyKey(b []byte) []byte {
	if len(b) > tree.MaxInline(w.PageSize()) {
		return b
	}
	if len(b) == 0 {
		return []byte{}
	}
	if cap(w.keyCopies)-len(w.keyCopies) < len(b) {
		w.keyCopies = make([]byte, 0, max(keyCopyChunk, len(b))) // earlier copies live on in the old chunk
	}
	at := len(w.keyCopies)
	w.keyCopies = append(w.keyCopies, b...)
	return w.keyCopies[at:len(w.keyCopies):len(w.keyCopies)]
}

const keyCopyChunk = 4 << 10

// names says whether a value of this size is named by the log, and not repeated there. What waits
// for no sync cannot be: its record might survive a power cut, and the extent not.
func (w *writer) names(size int) bool { return size >= w.s.nameFrom() && !w.relaxed && !w.noLog }

// logRefFraction of a segment is the least size of a value that the log names: below, a second sync
// costs more than a second write.
const logRefFraction = 16

// nameFrom is that size, in bytes: never one that fits into a page.
func (s *Store) nameFrom() int { return int(max(s.segment/logRefFraction, int64(s.pg.PageSize()))) }

// spill writes the transaction's pages early if frames are short. It is called between operations,
// when nobody holds a page. Looking for pages to write costs a look at all that were taken: after
// each look, frames have to grow by a share of the cache before the next.
func (w *writer) spill() error {
	if w.s.pg.FrameBytes() <= w.spillOver || w.s.o.ReadOnly {
		return nil
	}
	ids := w.spilled[:0]
	w.allocated.each(0, func(r pageRun) bool {
		if pg := w.s.pg; r.n == 1 && pg.Owner(r.id) >= w.firstOwner && pg.InFrame(r.id) && !pg.IsReusable(r.id) {
			ids = append(ids, r.id)
		}
		return true
	})
	w.spilled = ids
	share := w.s.o.CacheBytes / 8
	if int64(len(ids))*int64(w.PageSize()) < share {
		w.spillOver = w.s.pg.FrameBytes() + share // the frames are someone else's
		return nil
	}
	w.mods++
	err := w.s.dataError(w.s.pg.Spill(ids))
	w.spillOver = max(w.mostFrames, w.s.pg.FrameBytes()+share)
	return err
}

// spillAppendedBytes of leaves at most are written at a time by spillAppended.
const spillAppendedBytes = 1 << 20

// spillAppended writes leaves early that a transaction which goes through its trees from left to
// right has left behind: the disk is at work beside it, and their frames come back while they are
// in the processor's cache. It is called between operations. A leaf that is changed after all gets
// a frame again. backlog is told of what was written.
func (w *writer) spillAppended(backlog *pager.BackgroundSync) error {
	most := int(min(spillAppendedBytes, w.s.o.CacheBytes/16)) / w.PageSize()
	newest := most/16 + 1 // they are still being changed
	if w.allocated.len()-w.spillScanned < most+newest || w.s.o.ReadOnly {
		return nil
	}
	to := w.allocated.len() - newest
	ids := w.spilled[:0]
	at, err := w.spillScanned, error(nil)
	w.allocated.each(w.spillScanned, func(r pageRun) bool {
		if at++; at > to {
			return false
		}
		if r.n != 1 || w.s.pg.Owner(r.id) < w.firstOwner || !w.s.pg.InFrame(r.id) {
			return true
		}
		var b []byte
		if b, err = w.Page(pager.Ref{Pgid: r.id, Epoch: w.s.epoch}); err != nil {
			return false
		}
		if h := pager.ReadHeader(b); h.Kind == pager.KindLeaf {
			ids = append(ids, r.id)
		}
		return true
	})
	if err != nil {
		return err
	}
	w.spillScanned, w.spilled = to, ids
	if len(ids) == 0 {
		return nil
	}
	w.mods++
	err = w.s.pg.Spill(ids)
	if err == nil {
		err = backlog.Written(len(ids) * w.PageSize())
	}
	return w.s.dataError(err)
}

// rollback gives back every page that the transaction took. The log has taken back what it knows of
// it.
func (w *writer) rollback() {
	w.s.pg.ReleaseLeafRun(w.leafRunPages)
	if w.flushed > 0 && !w.submitted.logged {
		w.s.log.Abort()
	}
	w.s.pg.Undo().Rollback()
	w.freeAllocated(0)
	w.finish()
}

// freeAllocated returns the pages taken since the n-th to the pager.
func (w *writer) freeAllocated(n int) {
	w.allocated.each(n, func(r pageRun) bool {
		if err := w.s.pg.Unused(r.id, uint64(r.n)); err != nil {
			_ = w.s.fail(fmt.Errorf("give page %d back: %w", r.id, err))
		}
		return true
	})
	w.allocated.cut(n)
}

// finish lets go of what must not outlive the transaction, and of buffers that grew large.
func (w *writer) finish() {
	w.tx, w.keyCopies = nil, nil
	if cap(w.redo) > maxRedoBuffer {
		w.redo = nil
	}
	w.allocated.shed()
	if cap(w.spilled)*8 > maxRedoBuffer {
		w.spilled = nil
	}
	if cap(w.freed)*48 > maxRedoBuffer {
		w.freed = nil
	}
}

const maxRedoBuffer = 4 << 20
