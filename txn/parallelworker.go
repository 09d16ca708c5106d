package txn

import (
	"fmt"
	"runtime/debug"
	"sync/atomic"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/internal/mapfault"
)

// worker applies changes of partitions on one goroutine at a time.
type worker struct {
	pageWriter             // of all but the first worker
	pages      *pageWriter // its own, or the writer's
	err        error
	panicked   any // value of a recovered panic
	_          [64]byte
}

// job is one parallel apply. A worker that joins after the last part was taken returns at once.
type job struct {
	applier   *parallelApplier
	workers   int32
	parts     int32
	joined    atomic.Int32 // workers that have joined
	nextPart  atomic.Int32 // next part to take
	partsLeft atomic.Int32 // parts that are not finished
	stop      atomic.Bool  // a worker has failed
	done      chan struct{}
}

// jobSlot holds the running job; nil: none.
type jobSlot struct{ atomic.Pointer[job] }

// join joins the running job. A checkpoint calls it between two pages: its processor is not available
// to a worker.
func (s *jobSlot) join() {
	if r := s.Load(); r != nil {
		r.join()
	}
}

// runJob returns when n parts are finished by up to count workers: goroutines that end with the job,
// a checkpoint, and this goroutine, which finishes the job alone if no processor is free.
func (h *parallelApplier) runJob(count, n int) {
	r := &job{applier: h, workers: int32(count), parts: int32(n), done: make(chan struct{})}
	r.partsLeft.Store(r.parts)
	if h.w.s.o.Inline {
		for r.partsLeft.Load() > 0 {
			r.runPart(r.nextPart.Load() % r.workers) // round robin
		}
		return
	}
	h.w.s.job.Store(r)
	for range count - 1 {
		go r.join()
	}
	r.join()
	h.w.s.job.Store(nil)
	<-r.done
}

// join works on parts until all are taken.
func (r *job) join() {
	if r.nextPart.Load() >= r.parts {
		return
	}
	if i := r.joined.Add(1) - 1; i < r.workers {
		for r.runPart(i) {
		}
	}
}

// runPart has worker i work on the next part, if there is one.
func (r *job) runPart(i int32) bool {
	part := r.nextPart.Add(1) - 1
	if part >= r.parts {
		return false
	}
	r.applier.workers[i].applyPart(r, int(part))
	if r.partsLeft.Add(-1) == 0 {
		close(r.done)
	}
	return true
}

// applyPart applies the changes of a part. A panic, or a fault of the map, is kept for the writer's
// goroutine.
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
	var cursor tree.InsertCursor
	for rows := h.rows[part]; len(rows) > 0 && !r.stop.Load(); {
		n := min(len(rows), tree.MaxDescent)
		if k.err = k.applyRows(h, part, &cursor, rows[:n]); k.err != nil {
			r.stop.Store(true)
			return
		}
		rows = rows[n:]
	}
}

func (k *worker) applyRows(h *parallelApplier, part int, cursor *tree.InsertCursor, rows []int32) error {
	var some [tree.MaxDescent]Change
	for i, row := range rows {
		some[i] = h.changes[row]
	}
	t := h.parts.Tree(part)
	if err := tree.Prefetch(k.pages, *t, cursor, some[:len(rows)]); err != nil {
		return err
	}
	for i, row := range rows {
		c := &some[i]
		k.pages.policy.Purpose = purposeOf(c)
		info, err := cursor.Apply(k.pages, t, c)
		if err != nil {
			return err
		}
		h.was[row] = info
	}
	return nil
}
