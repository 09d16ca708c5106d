package txn

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/internal/mapfault"
	"github.com/ebbkv/ebb/pager"
)

// Many changes of one tree, whose keys lie anywhere, are carried out by several hands on as many
// processors. The tree is cut below its root into parts
// (tree.Parts), each hand changes some of them as the writer would change the tree, and then the parts are one tree again. Of each part
// the changes are carried out in their order, so that those of one key stay in it.
//
// What hands have in common is little: the free space, memory for patches and the table of pages
// behind sharing, frames and slots behind locks of their own, and for each a keeper of the undo.
// The file and the log are the writer's: no hand writes to them, nor calls anything of the user's.

// Fewer changes, and changes of smaller trees, are not worth the time that it takes to wake another
// processor.
const (
	defaultManyFrom = 128
	defaultManyRows = 64 << 10
)

const (
	maxWorkers       = pager.MaxUndoWriters
	partsPerWorker   = tree.MaxPartitions / maxWorkers // so that one who comes late, or is slow, has less to do
	changesPerWorker = 256                             // as many as are worth a third hand, and each one more
)

// A helper that has nothing to do stays for workerIdle, since it takes that long to find a
// processor for another one: a batch has one tree after the other to change. Whoever waits for
// helpers stays awake for spinWait.
const (
	workerIdle = 200 * time.Microsecond
	spinWait   = 50 * time.Microsecond
)

// parallelApplier are those of the store's writer.
type parallelApplier struct {
	w       *writer
	workers [maxWorkers]worker // the first is the writer's
	allocMu sync.Mutex

	parts     tree.Partitions
	changes   []Change
	was       []Info
	infoBuf   []Info                      // memory for was
	rows      [tree.MaxPartitions][]int32 // the changes of each part
	done      [tree.MaxPartitions]int     // so many of them are carried out
	unapplied []int32                     // changes that are not, because frames were short

	useful  bool         // the last ones had something to do
	running atomic.Int32 // helpers
}

// worker is a hand, and what it has met.
type worker struct {
	pageWriter             // of all but the first, which uses the writer's
	pages      *pageWriter // its own, or the writer's
	err        error
	panicked   any // with what it panicked
	_          [64]byte
}

// job is one time that they work. Who comes when the others have done all of it finds nothing to do
// there.
type job struct {
	applier   *parallelApplier
	workers   int32        // hands
	parts     int32        // parts
	joined    atomic.Int32 // hands that are taken
	nextPart  atomic.Int32 // the part that nobody has begun yet
	partsLeft atomic.Int32 // parts that are not finished
	stop      atomic.Bool  // one has failed, or frames are short: the others need not go on
	done      chan struct{}
}

// workersFor is how many hands so many changes are for; 1: only the writer's.
func (s *Store) workersFor(changes int) int {
	most := s.maxWorkersFor(changes)
	if s.o.Inline { // The crash bed is to see all of them.
		return 1 + int(s.stamps%uint64(most))
	}
	return most
}

func (s *Store) maxWorkersFor(changes int) int {
	switch {
	case changes < s.o.ManyFrom:
		return 1
	case s.o.Inline:
		return 4
	}
	return min(runtime.GOMAXPROCS(0), maxWorkers, max(changes/changesPerWorker, 2))
}

// parallelPages is how many pages hands may take for so many changes beside what one would:
// branches that are cut, a few for each part, and what each of them has taken ahead.
func (s *Store) parallelPages(changes int) uint64 {
	hands := s.maxWorkersFor(changes)
	if hands < 2 {
		return 0
	}
	return uint64(4*partsForWorkers(hands) + partitionReserve + hands*allocBatch)
}

// partitionReserve is for branches that are cut.
const partitionReserve = 64

// partsForWorkers is how many parts so many hands take.
func partsForWorkers(hands int) int { return min(hands*partsPerWorker, tree.MaxPartitions) }

// WakeWorkers says that so many changes are going to come, of a tree or of several. It is a hint:
// who can help with them may be on the way then.
func (tx *Tx) WakeWorkers(changes int) {
	if w := tx.w; w != nil && tx.check() == nil && w.parallel != nil && w.parallel.useful {
		w.parallel.startWorkers(tx.s.workersFor(changes))
	}
}

// startWorkers has helpers come until there are so many hands, if there are processors for them.
func (h *parallelApplier) startWorkers(count int) {
	more := count - 1 - int(h.running.Load())
	if more <= 0 || h.w.s.o.Inline {
		return
	}
	for range more {
		h.running.Add(1)
		go h.workerLoop()
	}
	// The goroutine that was started last stays with this processor for a while: a second one wakes
	// another.
	go func() {}()
}

// workerLoop takes part in rounds until none has come for a while.
func (h *parallelApplier) workerLoop() {
	defer h.running.Add(-1)
	for since := time.Now(); time.Since(since) < workerIdle; runtime.Gosched() {
		if h.w.s.joinJob() {
			since = time.Now()
		}
	}
}

// joinJob takes part in the round of hands that is under way, if there is one, and says whether it
// found something to do. It is for helpers, and for a checkpoint between two pages: that has a
// processor which no helper can have meanwhile.
func (s *Store) joinJob() bool {
	r := s.job.Load()
	return r != nil && r.join()
}

// applyParallel is Apply by several hands. done is false if it is not for them: then nothing has
// happened.
func (tx *Tx) applyParallel(id TreeID, changes []Change, was []Info) (done bool, err error) {
	w := tx.w
	if w == nil || tx.check() != nil || !tx.s.started || w.saved || w.noLog ||
		tx.s.workersFor(len(changes)) < 2 {
		return false, nil
	}
	if w, err = tx.change(); err != nil {
		return false, err
	}
	left, done, err := w.applyParallel(id, changes, was)
	if err != nil {
		return false, tx.abort(err)
	}
	if len(left) > 0 {
		err = tx.applyUnapplied(id, changes, was, slices.Clone(left))
	}
	return done, err
}

// applyParallel carries out changes, and says which are left because frames are short, in their
// order.
func (w *writer) applyParallel(id TreeID, changes []Change, was []Info) (left []int32, done bool, err error) {
	count := w.s.workersFor(len(changes))
	s, err := w.state(id)
	if err != nil || s.t.Rows < w.s.o.ManyRows || w.short() {
		return nil, false, err
	}
	h := w.parallel
	if h == nil {
		h = &parallelApplier{w: w}
		h.workers[0].pages = &w.pageWriter
		w.parallel = h
	}
	if h.useful {
		h.startWorkers(count)
	}
	h.useful = false
	size, longest, puts := 0, 0, false
	for i := range changes {
		c := &changes[i]
		size += len(c.Key) + len(c.Value)
		longest = max(longest, len(c.Value))
		puts = puts || !c.Delete
	}
	if longest > tree.MaxInline(w.PageSize()) || w.ensureTxnBytes(size) != nil {
		return nil, false, nil
	}
	if puts {
		w.checkMaxBytes()
	}
	defer func() { // also after a panic
		h.changes, h.was = nil, nil
		h.parts.Reset()
	}()
	t := s.t
	n, err := h.parts.Partition(w, t, changes, partsForWorkers(count))
	if err != nil || n < 2 {
		return nil, false, err
	}
	h.useful = true
	h.startWorkers(count)
	h.assignRows(n, changes, was)
	if err := h.partitionAndApply(count, n); err != nil {
		return nil, false, err
	}
	h.collectUnapplied(n)
	if err := h.parts.Merge(w, &t); err != nil {
		return nil, false, err
	}
	w.set(id, t)
	return h.unapplied, true, h.logApplied(id)
}

// short says that frames are: the writer has to write pages early, which hands do not.
func (w *writer) short() bool { return w.s.pg.FrameBytes() > w.spillOver }

// assignRows finds the changes of each of n parts.
func (h *parallelApplier) assignRows(n int, changes []Change, was []Info) {
	if h.changes, h.was = changes, was; was == nil {
		h.infoBuf = slices.Grow(h.infoBuf[:0], len(changes))[:len(changes)]
		h.was = h.infoBuf
	}
	for i := range n {
		h.rows[i], h.done[i] = h.rows[i][:0], 0
	}
	for i := range changes {
		part := h.parts.Index(changes[i].Key)
		h.rows[part] = append(h.rows[part], int32(i))
	}
}

// partitionAndApply has so many hands carry out the changes of n parts, as far as frames suffice.
func (h *parallelApplier) partitionAndApply(count, n int) error {
	w := h.w
	undo := w.s.pg.Undo()
	var keepers []*pager.UndoWriter
	if w.Undo() != nil {
		keepers = undo.Split(count)
	}
	mayPatch := w.mayDelta
	w.mayDelta = mayPatch && w.s.mayPatch()
	over := w.s.pg.Overdraft(false)
	for i := range count {
		k := &h.workers[i]
		k.err, k.panicked = nil, nil
		if i > 0 {
			k.pages = &k.pageWriter
			k.pageWriter = pageWriter{
				s: w.s, w: w, base: w.base, owner: w.owner, firstOwner: w.firstOwner, mayDelta: w.mayDelta,
				allocated: k.allocated, spare: k.spare[:0], freed: k.freed[:0], directRead: w.directRead, readBuf: k.readBuf,
			}
			if keepers != nil {
				k.undo = keepers[i]
			}
		}
		k.pages.allocMu, k.pages.cachedGroup = &h.allocMu, freeMapGroup{}
	}
	h.runJob(count, n)
	w.allocMu, w.mayDelta = nil, mayPatch
	w.s.pg.Overdraft(over)
	if keepers != nil {
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
		if died := h.workers[i].panicked; died != nil {
			panic(died)
		}
	}
	for i := range count {
		err := h.workers[i].err
		var no *allocError
		if errors.As(err, &no) {
			err = w.s.spaceError(no.err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// runJob returns when n parts have been worked on. This goroutine takes part, and does by itself
// what no processor is found for.
func (h *parallelApplier) runJob(count, n int) {
	r := &job{applier: h, workers: int32(count), parts: int32(n), done: make(chan struct{})}
	r.partsLeft.Store(r.parts)
	if h.w.s.o.Inline {
		for r.partsLeft.Load() > 0 {
			r.runPart(r.nextPart.Load() % r.workers) // Each of them has its turn.
		}
		return
	}
	h.w.s.job.Store(r)
	r.join()
	h.w.s.job.Store(nil)
	for since := time.Now(); r.partsLeft.Load() > 0 && time.Since(since) < spinWait; {
		runtime.Gosched()
	}
	if r.partsLeft.Load() > 0 {
		<-r.done
	}
}

// join works on parts as long as there are some that nobody has begun, and says whether there was
// one.
func (r *job) join() (any bool) {
	if r.nextPart.Load() >= r.parts {
		return false
	}
	no := r.joined.Add(1) - 1
	if no >= r.workers {
		return false
	}
	for r.runPart(no) {
		any = true
	}
	return any
}

// runPart has that hand work on the part that comes next, if there is one.
func (r *job) runPart(no int32) bool {
	i := r.nextPart.Add(1) - 1
	if i >= r.parts {
		return false
	}
	r.applier.workers[no].applyPart(r, int(i))
	if r.partsLeft.Add(-1) == 0 {
		close(r.done)
	}
	return true
}

// applyPart carries out the changes of a part. What it meets, a fault of the map too, is left to
// the writer's goroutine.
func (k *worker) applyPart(r *job, part int) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			if _, fault := mapfault.Address(p); !fault {
				p = fmt.Sprintf("%v\n\n%s", p, debug.Stack())
			}
			k.panicked = p
			r.stop.Store(true)
		}
	}()
	h := r.applier
	var finger tree.InsertCursor
	for rows := h.rows[part]; len(rows) > 0 && !r.stop.Load(); {
		if h.w.short() {
			r.stop.Store(true)
			return
		}
		n := min(len(rows), tree.MaxHints)
		if k.err = k.applyRows(h, part, &finger, rows[:n]); k.err != nil {
			r.stop.Store(true)
			return
		}
		h.done[part] += n
		rows = rows[n:]
	}
}

func (k *worker) applyRows(h *parallelApplier, part int, finger *tree.InsertCursor, rows []int32) error {
	var some [tree.MaxHints]Change
	for i, row := range rows {
		some[i] = h.changes[row]
	}
	t := h.parts.Tree(part)
	var ways tree.PathHints
	if err := ways.Prefetch(k.pages, *t, finger, some[:len(rows)]); err != nil {
		return err
	}
	for i, row := range rows {
		c := &some[i]
		k.pages.mayOverdraft = c.Delete // what frees space is not refused
		info, err := ways.Apply(k.pages, t, finger, i, c)
		if err != nil {
			return err
		}
		h.was[row] = info
	}
	return nil
}

// collectUnapplied notes what has not been carried out, in its order.
func (h *parallelApplier) collectUnapplied(n int) {
	h.unapplied = h.unapplied[:0]
	for i := range n {
		h.unapplied = append(h.unapplied, h.rows[i][h.done[i]:]...)
	}
	slices.Sort(h.unapplied)
}

// logApplied adds what was carried out to the redo, in the order in which it was asked for.
func (h *parallelApplier) logApplied(id TreeID) error {
	w, left := h.w, h.unapplied
	for i := range h.changes {
		if len(left) > 0 && int(left[0]) == i {
			left = left[1:]
			continue
		}
		if err := w.logChange(id, &h.changes[i], h.was[i].Found); err != nil {
			return err
		}
	}
	return nil
}

// applyUnapplied carries out what hands have left of changes, by others if they got anywhere.
func (tx *Tx) applyUnapplied(id TreeID, changes []Change, was []Info, left []int32) error {
	some := make([]Change, len(left))
	for i, at := range left {
		some[i] = changes[at]
	}
	var infos []Info
	if was != nil {
		infos = make([]Info, len(left))
	}
	apply := tx.Apply
	if len(left) == len(changes) {
		apply = tx.applyAll
	}
	err := apply(id, some, infos)
	for i := range infos {
		was[left[i]] = infos[i]
	}
	return err
}
