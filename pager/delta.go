package pager

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"

	"github.com/ebbkv/ebb/internal/invariant"
)

// A delta holds the changes of a leaf since the last checkpoint, instead of a copy of the leaf.
// Like a frame, it represents a page: page and number are allocated together, earlier versions do
// not refer to them, and a checkpoint writes the whole page. A delta saves the copy of a page of
// which two or three rows are new. If random rows go to more leaves than fit in memory, such copies
// are nearly all of the memory.
//
// The base of a delta is the leaf that it changes: a page of an earlier epoch, which the file holds
// before the next checkpoint begins. Unlike other replaced pages, the base must stay as long as a
// reader may read the delta's page: until the checkpoint that writes the page is durable and all
// snapshots that began before its end are closed. txn ensures this.
//
//	0           8            12      16     20      24
//	+-----------+------------+-------+------+-------+--- ... ---+
//	| base pgid | base epoch | epoch | size | zeros | changes   |   in memory only: never in the file
//	| u64       | u32        | u32   | u32  | u32   |           |
//	+-----------+------------+-------+------+-------+--- ... ---+
//
// Options.ApplyDelta interprets the changes. A delta never changes after the commit of its
// transaction.
const deltaHead = 24

// deltaFraction is the part of a page that a delta may take: a larger one is replaced by a frame.
// With a quarter, leaves with nine rows of a hundred bytes had frames, and checkpoints began sooner
// (ADR 0015).
const deltaFraction = 2

// MaxDelta is the maximum size of the changes of one delta, in bytes.
func (bp *BufferPool) MaxDelta() int { return bp.pageSize/deltaFraction - deltaHead }

// deltaArena is the memory of the deltas of one epoch: frames that are filled in order and freed
// together. Within the epoch, a delta of the same size reuses the memory of a released one.
type deltaArena struct {
	epoch  Epoch
	frames Frames
	used   int                // bytes of the last frame
	free   [][]unsafe.Pointer // by size, in units of deltaUnit
}

// deltaUnit is the granularity of delta sizes, in bytes.
const deltaUnit = 16

// decodeDelta decodes the delta at f, of a page of that epoch.
func decodeDelta(f unsafe.Pointer) (base Ref, epoch Epoch, changes []byte) {
	head := unsafe.Slice((*byte)(f), deltaHead)
	base.Pgid = Pgid(binary.LittleEndian.Uint64(head))
	base.Epoch = Epoch(binary.LittleEndian.Uint32(head[8:]))
	n := deltaHead + int(binary.LittleEndian.Uint32(head[16:]))
	return base, Epoch(binary.LittleEndian.Uint32(head[12:])), unsafe.Slice((*byte)(f), n)[deltaHead:n:n]
}

// add encodes a delta with these changes, of a page of that epoch.
func (q *deltaArena) add(a *frameArena, base Ref, epoch Epoch, changes []byte) (unsafe.Pointer, error) {
	f, err := q.alloc(a, deltaUnits(len(changes)), epoch)
	if err != nil {
		return nil, err
	}
	b := unsafe.Slice((*byte)(f), deltaHead+len(changes))
	binary.LittleEndian.PutUint64(b, uint64(base.Pgid))
	binary.LittleEndian.PutUint32(b[8:], uint32(base.Epoch))
	binary.LittleEndian.PutUint32(b[12:], uint32(epoch))
	binary.LittleEndian.PutUint64(b[16:], uint64(len(changes)))
	copy(b[deltaHead:], changes)
	return f, nil
}

// deltaUnits is the size of a delta with n bytes of changes, in units of deltaUnit.
func deltaUnits(n int) int { return (deltaHead + n + deltaUnit - 1) / deltaUnit }

func (q *deltaArena) alloc(a *frameArena, units int, epoch Epoch) (unsafe.Pointer, error) {
	if q.epoch != epoch {
		q.epoch, q.free = epoch, nil
	}
	if units < len(q.free) {
		if n := len(q.free[units]); n > 0 {
			f := q.free[units][n-1]
			q.free[units] = q.free[units][:n-1]
			return f, nil
		}
	}
	if len(q.frames) == 0 || a.pageSize-q.used < units*deltaUnit {
		f, err := a.alloc()
		if err != nil {
			return nil, err
		}
		q.frames, q.used = append(q.frames, f), 0
	}
	f := unsafe.Add(q.frames[len(q.frames)-1], q.used)
	q.used += units * deltaUnit
	return f, nil
}

// release makes the memory of the delta at f, of the present epoch, available. No reader uses it
// any more.
func (q *deltaArena) release(f unsafe.Pointer) {
	_, _, changes := decodeDelta(f)
	units := deltaUnits(len(changes))
	for len(q.free) <= units {
		q.free = append(q.free, nil)
	}
	q.free[units] = append(q.free[units], f)
}

// DeltaBytes is the memory of deltas that no checkpoint has captured. Writer lock.
func (bp *BufferPool) DeltaBytes() int64 { return int64(len(bp.deltas.frames)) * int64(bp.pageSize) }

// CanDelta reports whether a delta may change a page of a state that is built in epoch: the page
// has a delta of this epoch, or a checkpoint has written it or is writing it. Writer lock.
func (bp *BufferPool) CanDelta(ref Ref, epoch Epoch) bool {
	if ref.Epoch <= bp.captured {
		return true
	}
	s := bp.table.peek(ref.Pgid)
	return ref.Epoch == epoch && s != nil && s.delta != nil && bp.hasDeltaOf(ref.Pgid, epoch)
}

// DeltaBase returns the base of a page for which CanDelta is true in epoch, as a reference and as
// bytes, and the changes that the page has; nil for none. Writer lock.
func (v View) DeltaBase(ref Ref, epoch Epoch) (base Ref, b, changes []byte, err error) {
	base = ref
	if ref.Epoch == epoch {
		base, _, changes = decodeDelta(v.r.pool.table.peek(ref.Pgid).delta)
	}
	b, err = v.r.deltaBase(base, v.base)
	return base, b, changes, err
}

// StoreDelta replaces ref, whose base is base, by a page with the content of base and the changes.
// The result is ref itself if that has a delta of this epoch and the same owner, else a new page.
// Writer lock.
func (p *Pager) StoreDelta(ref, base Ref, epoch Epoch, owner uint64, changes []byte, how AllocPolicy) (
	Ref, error,
) {
	s := p.Pool.table.peek(ref.Pgid)
	if ref.Epoch < epoch || s.owner != owner { // or without ref
		return p.NewDelta(base, epoch, owner, changes, how)
	}
	f, err := p.Pool.deltas.add(&p.Pool.arena, base, epoch, changes)
	if err != nil {
		return Ref{}, err
	}
	old := s.delta
	atomic.StorePointer(&s.delta, f)
	p.Pool.deltas.release(old)
	return ref, nil
}

// NewDelta allocates a page with the content of base and the changes. Writer lock.
func (p *Pager) NewDelta(base Ref, epoch Epoch, owner uint64, changes []byte, how AllocPolicy) (
	Ref, error,
) {
	f, err := p.Pool.deltas.add(&p.Pool.arena, base, epoch, changes)
	if err != nil {
		return Ref{}, err
	}
	id, err := p.Alloc.allocate(how, true)
	if err != nil {
		p.Pool.deltas.release(f)
		return Ref{}, err
	}
	s := p.Pool.table.slot(id)
	p.Pool.freeFrame(s) // a page of the framed free list has one
	s.owner = owner
	*p.Pool.deltaEpochs.slot(id) = epoch
	atomic.StorePointer(&s.delta, f)
	return Ref{id, epoch}, nil
}

// Reassign copies a delta of this epoch to a new page, fresh, that replaces ref. done is false if
// ref has no such delta. Writer lock.
func (p *Pager) Reassign(ref Ref, epoch Epoch, owner uint64, how AllocPolicy) (
	fresh Ref, done bool, err error,
) {
	s := p.Pool.table.peek(ref.Pgid)
	if ref.Epoch != epoch || s == nil || s.delta == nil || !p.Pool.hasDeltaOf(ref.Pgid, epoch) {
		return ref, false, nil
	}
	base, _, changes := decodeDelta(s.delta)
	fresh, err = p.NewDelta(base, epoch, owner, changes, how)
	return fresh, err == nil, err
}

// Leaf returns a leaf like Page, but does not apply its delta: if changes is not nil, b is the
// base. changes is valid as long as a page is.
func (v View) Leaf(ref Ref) (b, changes []byte, err error) {
	if ref.Epoch > v.base {
		if s := v.r.pool.table.peek(ref.Pgid); s != nil {
			invariant.Pause()
			if f := atomic.LoadPointer(&s.dirty); f != nil {
				invariant.Pause()
				if s.changed.Load() > v.version {
					b, err = v.r.undo.pageBefore(ref.Pgid, s, v.version)
					return b, nil, err
				}
				return unsafe.Slice((*byte)(f), v.r.pageSize), nil, nil
			}
			if f := atomic.LoadPointer(&s.delta); f != nil {
				return v.r.deltaLeaf(f, v.base)
			}
		}
	}
	b, err = v.r.fromFile(ref)
	return b, nil, err
}

// deltaLeaf returns the base and the changes of the delta at f, for a snapshot whose newest
// checkpoint is durable.
func (r *Reader) deltaLeaf(f unsafe.Pointer, durable Epoch) (b, changes []byte, err error) {
	base, _, changes := decodeDelta(f)
	invariant.Pause()
	b, err = r.deltaBase(base, durable)
	invariant.Pause()
	return b, changes, err
}

// deltaBase returns the base of a delta. A checkpoint later than the snapshot's may be writing the
// base: then the base may have a frame, or a delta over a page without one. A page that the
// snapshot's checkpoint has written may also have a frame, which serves older snapshots only. A
// reference from a damaged file may name a page that was allocated since. The epoch check excludes
// it, so that no page is ever the base of its own base.
func (r *Reader) deltaBase(ref Ref, durable Epoch) ([]byte, error) {
	if ref.Epoch > durable {
		if s := r.pool.table.peek(ref.Pgid); s != nil {
			if f := atomic.LoadPointer(&s.dirty); f != nil {
				if b := unsafe.Slice((*byte)(f), r.pageSize); ReadHeader(b).Epoch == ref.Epoch {
					return b, nil
				}
			} else if f := atomic.LoadPointer(&s.delta); f != nil {
				if _, epoch, _ := decodeDelta(f); epoch == ref.Epoch {
					b, changes, err := r.deltaLeaf(f, durable)
					if err != nil {
						return nil, err
					}
					return r.mergedPage(ref, b, changes)
				}
			}
		}
	}
	return r.fromFile(ref)
}

// mergedPage builds the page at ref from its base and its changes, in memory of the Go heap: it lives
// as long as a reader uses it.
func (r *Reader) mergedPage(ref Ref, base, changes []byte) ([]byte, error) {
	b := make([]byte, r.pageSize)
	return b, r.MergeDelta(ref, b, base, changes)
}

// MergeDelta builds in b the page at ref from its base and its changes, nil for none.
func (f *mainFile) MergeDelta(ref Ref, b, base, changes []byte) error {
	copy(b, base)
	SetRef(b, ref)
	if changes == nil {
		return nil
	}
	return f.o.ApplyDelta(b, changes)
}

// mergeInto is MergeDelta for a checkpoint. It reads and verifies the base from the file, because a
// page fault in the map must not end a checkpoint. A state may have replaced the base, and this
// read would detect that its page number was reused too early.
func (w *flusher) mergeInto(b []byte, id Pgid, f unsafe.Pointer) error {
	base, epoch, changes := decodeDelta(f)
	if err := w.read(base.Pgid, b); err != nil {
		return err
	}
	if err := w.verifyHeader(base, b); err != nil {
		return err
	}
	w.dropBase(base.Pgid)
	return w.MergeDelta(Ref{id, epoch}, b, b, changes)
}

// readBases has the system read the bases of these pages, if memory is scarce: a checkpoint that waited
// for them one by one took most of its time so.
func (w *flusher) readBases(ids []Pgid) {
	if !w.mapped || !w.Scarce() {
		return
	}
	for _, id := range ids {
		s := w.pool.table.peek(id)
		if s == nil || atomic.LoadPointer(&s.dirty) != nil {
			continue
		}
		if f := atomic.LoadPointer(&s.delta); f != nil {
			base, _, _ := decodeDelta(f)
			w.fileAhead(int64(base.Pgid)*int64(w.pageSize), int64(w.pageSize))
		}
	}
}

// hasDeltaOf reports whether the delta of a page, if it has one, is of this epoch. Writer lock.
func (bp *BufferPool) hasDeltaOf(id Pgid, epoch Epoch) bool {
	e := bp.deltaEpochs.peek(id)
	return e != nil && *e == epoch
}

// dropDelta removes the delta of a page number that is freed or reused. The deltas of earlier
// epochs are freed together. Writer lock.
func (bp *BufferPool) dropDelta(id Pgid) {
	s := bp.table.peek(id)
	if s == nil {
		return
	}
	f := atomic.LoadPointer(&s.delta)
	if f == nil {
		return
	}
	atomic.StorePointer(&s.delta, nil)
	if bp.hasDeltaOf(id, bp.deltas.epoch) {
		bp.deltas.release(f)
	}
}
