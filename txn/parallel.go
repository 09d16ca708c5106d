package txn

import (
	"errors"
	"runtime"
	"slices"
	"sync"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/pager"
)

// A large batch of changes to one tree, in any key order, is applied in parallel. The tree is split
// below its root into partitions (tree.Partitions). Each worker applies the changes of some
// partitions as the writer would, and then the partitions are merged. Within a partition the
// changes are applied in batch order, and so are those of one key.
//
// Workers share the allocator, the memory of deltas and the page table behind allocMu, frames and
// the slots of the page table behind locks of their own. Each has its own undo writer. Only the
// writer writes to the file and the log, and only its goroutine calls callbacks of the user.

// Smaller batches, and batches for smaller trees, do not repay the time to wake another processor.
const (
	defaultManyFrom = 128
	defaultManyRows = 64 << 10
)

const (
	maxWorkers       = pager.MaxUndoWriters
	partsPerWorker   = tree.MaxPartitions / maxWorkers // several, so that a late or slow worker does fewer
	changesPerWorker = 256                             // for each worker from the third on
)

// parallelApplier is the parallel apply of the store's writer.
type parallelApplier struct {
	w       *writer
	workers [maxWorkers]worker // the first uses the writer's pageWriter
	allocMu sync.Mutex

	parts   tree.Partitions
	changes []Change
	was     []Info
	infoBuf []Info                      // memory for was
	rows    [tree.MaxPartitions][]int32 // the changes of each part

	applied bool // the last batch was applied in parallel: for tests
}

// workersFor is the number of workers for a batch; 1: no parallel apply.
func (o *Options) workersFor(changes int) int {
	most := o.maxWorkersFor(changes)
	if most > 1 && o.Choose != nil {
		return 1 + o.Choose(most)
	}
	return most
}

func (o *Options) maxWorkersFor(changes int) int {
	switch {
	case changes < o.ManyFrom:
		return 1
	case o.Choose != nil:
		return 4
	}
	return min(runtime.GOMAXPROCS(0), maxWorkers, max(changes/changesPerWorker, 2))
}

// parallelPages bounds the pages that a parallel apply of a batch allocates beyond a serial one:
// split branches, a few for each part, and the spare pages of each worker.
func (o *Options) parallelPages(changes int) uint64 {
	workers := o.maxWorkersFor(changes)
	if workers < 2 {
		return 0
	}
	return uint64(4*partsForWorkers(workers) + partitionReserve + workers*allocBatch)
}

// partitionReserve is the pages for branches above the partitions.
const partitionReserve = 64

// partsForWorkers is the number of parts for a number of workers.
func partsForWorkers(workers int) int { return min(workers*partsPerWorker, tree.MaxPartitions) }

// applyParallel is Apply by several workers. If done is false the batch does not qualify, and
// nothing was changed.
func (tx *Tx) applyParallel(id TreeID, changes []Change, was []Info) (done bool, err error) {
	w := tx.w
	if w == nil || tx.check() != nil || !tx.s.started || w.saved || w.noLog {
		return false, nil
	}
	count := tx.s.o.workersFor(len(changes))
	if count < 2 {
		return false, nil
	}
	if w, err = tx.change(); err != nil {
		return false, err
	}
	done, err = w.applyParallel(count, id, changes, was)
	return done, tx.abort(err)
}

// applyParallel applies changes by count workers, if there are frames for them.
func (w *writer) applyParallel(count int, id TreeID, changes []Change, was []Info) (done bool, err error) {
	s, err := w.state(id)
	if err != nil || s.t.Rows < w.s.o.ManyRows {
		return false, err
	}
	h := w.parallel
	if h == nil {
		h = &parallelApplier{w: w}
		h.workers[0].pages = &w.pageWriter
		w.parallel = h
	}
	h.applied = false
	size, extents, puts := 0, false, false
	for i := range changes {
		c := &changes[i]
		size += len(c.Key) + len(c.Value)
		extents = extents || len(c.Value) > tree.MaxInline(w.PageSize(), len(c.Key))
		puts = puts || !c.Delete
	}
	if extents || !w.hasFrames(len(changes)) || w.ensureTxnBytes(size) != nil {
		return false, nil
	}
	if puts {
		w.checkMaxBytes()
	} else {
		defer w.usePurpose(pager.ForDelete)()
	}
	defer func() { // also after a panic
		h.changes, h.was = nil, nil
		h.parts.Reset()
	}()
	t := s.t
	n, err := h.parts.Partition(w, t, changes, partsForWorkers(count))
	if err != nil || n < 2 {
		return false, err
	}
	h.applied = true
	h.assignRows(n, changes, was)
	if err := h.partitionAndApply(count, n); err != nil {
		return false, err
	}
	if err := h.parts.Merge(w, &t); err != nil {
		return false, err
	}
	w.set(id, t)
	for i := range changes {
		if err := w.logChange(id, &changes[i], h.was[i].Found); err != nil {
			return false, err
		}
	}
	return true, nil
}

// hasFrames says that there are frames for the leaves that so many changes copy: workers do not spill
// pages.
func (w *writer) hasFrames(changes int) bool {
	leaves := min(uint64(changes), w.s.pg.Alloc.UsedPages())
	return w.s.pg.Pool.FrameBytes()+int64(leaves)*int64(w.PageSize()) <= w.spillOver
}

func (h *parallelApplier) assignRows(n int, changes []Change, was []Info) {
	if h.changes, h.was = changes, was; was == nil {
		h.infoBuf = slices.Grow(h.infoBuf[:0], len(changes))[:len(changes)]
		h.was = h.infoBuf
	}
	for i := range n {
		h.rows[i] = h.rows[i][:0]
	}
	for i := range changes {
		part := h.parts.Index(changes[i].Key)
		h.rows[part] = append(h.rows[part], int32(i))
	}
}

// partitionAndApply has count workers apply the changes of n parts.
func (h *parallelApplier) partitionAndApply(count, n int) error {
	w := h.w
	undo := &w.s.pg.Undo
	var undoWriters []*pager.UndoWriter
	if w.Undo() != nil {
		undoWriters = undo.Split(count)
	}
	mayDelta, purpose := w.mayDelta, w.policy.Purpose
	w.mayDelta = mayDelta && w.hasDeltaMemory()
	for i := range count {
		k := &h.workers[i]
		k.err, k.panicked = nil, nil
		if i > 0 {
			k.pages = &k.pageWriter
			left := max(len(w.spare)-allocBatch, 0) // the worker begins with pages of earlier ones
			k.spare, w.spare = append(k.spare[:0], w.spare[left:]...), w.spare[:left]
			k.pageWriter = pageWriter{
				s: w.s, w: w, View: w.View, owner: w.owner, firstOwner: w.firstOwner, mayDelta: w.mayDelta,
				allocated: k.allocated, spare: k.spare, freed: k.freed[:0],
				directRead: w.directRead, readBuf: k.readBuf, policy: w.policy,
			}
			if undoWriters != nil {
				k.undo = undoWriters[i]
			}
		}
		k.pages.allocMu, k.pages.cachedGroup = &h.allocMu, freeMapGroup{}
	}
	h.runJob(count, n)
	w.allocMu, w.mayDelta = nil, mayDelta
	w.policy.Purpose = purpose
	if undoWriters != nil {
		undo.Merge()
	}
	for i := 1; i < count; i++ {
		k := &h.workers[i]
		w.allocated.pushAll(&k.allocated)
		k.allocated.reset()
		w.spare = append(w.spare, k.spare...)
		w.freed = append(w.freed, k.freed...)
	}
	for i := range count {
		if p := h.workers[i].panicked; p != nil {
			panic(p)
		}
	}
	for i := range count {
		err := h.workers[i].err
		var unallocated *allocError
		if errors.As(err, &unallocated) {
			err = w.s.spaceError(unallocated.err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
