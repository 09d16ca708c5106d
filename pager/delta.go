package pager

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"

	"github.com/ebbkv/ebb/internal/invariant"
)

// A patch is what has changed in a leaf since the last checkpoint, kept instead of a copy of the
// leaf. It stands for a page as a frame does: page and number are born together, versions before do
// not know them, and a checkpoint writes the whole page. What is left out is the copy of a page of
// which two or three rows are new: where rows come at random to more leaves than there is memory
// for, it is nearly all of what they need.
//
// The leaf that a patch changes is its base: a page of an earlier epoch, which the file holds
// before the next checkpoint begins. It must stay there, unlike other pages that are replaced, as
// long as anyone may ask for the patched page: until the checkpoint that writes it is over, and all
// who began before its end have ended. See txn for who sees to that.
//
//	0           8            12      16     20      24
//	+-----------+------------+-------+------+-------+--- ... ---+
//	| base pgid | base epoch | epoch | size | zeros | changes   |   in memory only: never in the file
//	| u64       | u32        | u32   | u32  | u32   |           |
//	+-----------+------------+-------+------+-------+--- ... ---+
//
// What the changes mean is for Options.Merge to know. A patch never changes once its transaction
// has committed.
const deltaHead = 24

// deltaFraction of a page is the most that a patch takes: beyond, the page gets a frame, which is
// little more. With a quarter, leaves with nine rows of a hundred bytes had frames, and checkpoints
// began sooner (ADR 0015).
const deltaFraction = 2

// MostPatch is the size in bytes of the changes that one patch has room for.
func (p *Pager) MostPatch() int { return p.pageSize/deltaFraction - deltaHead }

// deltaArena is the memory of the patches of one epoch: frames that are filled one behind the other
// and go all at once. Until then what a patch had is used again by others of its size.
type deltaArena struct {
	epoch  Epoch
	frames Frames
	used   int                // bytes of the last one
	free   [][]unsafe.Pointer // by size, in units of deltaUnit
}

// deltaUnit is what the sizes of patches are multiples of, in bytes.
const deltaUnit = 16

// decodeDelta decodes the patch at f, of a page of that epoch.
func decodeDelta(f unsafe.Pointer) (base Ref, epoch Epoch, changes []byte) {
	head := unsafe.Slice((*byte)(f), deltaHead)
	base.Pgid = Pgid(binary.LittleEndian.Uint64(head))
	base.Epoch = Epoch(binary.LittleEndian.Uint32(head[8:]))
	n := deltaHead + int(binary.LittleEndian.Uint32(head[16:]))
	return base, Epoch(binary.LittleEndian.Uint32(head[12:])), unsafe.Slice((*byte)(f), n)[deltaHead:n:n]
}

// add makes a patch with these changes, of a page of that epoch.
func (q *deltaArena) add(a *frameArena, base Ref, epoch Epoch, changes []byte) (unsafe.Pointer, error) {
	f, err := q.alloc(a, patchUnits(len(changes)), epoch)
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

// patchUnits is the size of a patch with n bytes of changes.
func patchUnits(n int) int { return (deltaHead + n + deltaUnit - 1) / deltaUnit }

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

// release takes back what the patch at f has, which is of the present epoch. Nobody looks at it any
// more.
func (q *deltaArena) release(f unsafe.Pointer) {
	_, _, changes := decodeDelta(f)
	units := patchUnits(len(changes))
	for len(q.free) <= units {
		q.free = append(q.free, nil)
	}
	q.free[units] = append(q.free[units], f)
}

// PatchBytes is the memory of patches that no checkpoint writes yet. Writer lock.
func (p *Pager) PatchBytes() int64 { return int64(len(p.deltas.frames)) * int64(p.pageSize) }

// CanDelta says that a page of a state that is being built in epoch may be changed by a patch: it
// has one, of this epoch, or a checkpoint has written it, or is writing it. Writer lock.
func (p *Pager) CanDelta(ref Ref, epoch Epoch) bool {
	if ref.Epoch <= p.captured {
		return true
	}
	s := p.table.peek(ref.Pgid)
	return ref.Epoch == epoch && s != nil && s.delta != nil && p.patchedIn(ref.Pgid, epoch)
}

// DeltaBase returns what a patch of a page that is Patchable in epoch changes, as a reference and
// as bytes, and the changes that it has; nil for none. The newest checkpoint is durable. Writer
// lock.
func (p *Pager) DeltaBase(ref Ref, durable, epoch Epoch) (base Ref, b, changes []byte, err error) {
	base = ref
	if ref.Epoch == epoch {
		base, _, changes = decodeDelta(p.table.peek(ref.Pgid).delta)
	}
	b, err = p.deltaBase(base, durable)
	return base, b, changes, err
}

// StoreDelta returns a page with the content of base but for the changes, instead of ref, whose
// Base that is: ref itself if that has a patch of this epoch and the same owner, else one that is
// born. Writer lock.
func (p *Pager) StoreDelta(ref, base Ref, epoch Epoch, owner uint64, changes []byte) (Ref, error) {
	s := p.table.peek(ref.Pgid)
	if ref.Epoch < epoch || s.owner != owner {
		return p.NewDelta(base, epoch, owner, changes)
	}
	f, err := p.deltas.add(&p.arena, base, epoch, changes)
	if err != nil {
		return Ref{}, err
	}
	old := s.delta
	atomic.StorePointer(&s.delta, f)
	p.deltas.release(old)
	return ref, nil
}

// NewDelta returns a page that is born with the content of base but for the changes. Writer lock.
func (p *Pager) NewDelta(base Ref, epoch Epoch, owner uint64, changes []byte) (Ref, error) {
	f, err := p.deltas.add(&p.arena, base, epoch, changes)
	if err != nil {
		return Ref{}, err
	}
	id, err := p.allocate(true)
	if err != nil {
		p.deltas.release(f)
		return Ref{}, err
	}
	s := p.table.slot(id)
	p.freeFrame(s) // one that a page on the hot stack kept
	s.owner = owner
	*p.patchedAt.slot(id) = epoch
	atomic.StorePointer(&s.delta, f)
	return Ref{id, epoch}, nil
}

// Reassign gives a page that has a patch of this epoch another number: fresh is born with the same
// content, in the place of ref. done is false if ref is no such page. Writer lock.
func (p *Pager) Reassign(ref Ref, epoch Epoch, owner uint64) (fresh Ref, done bool, err error) {
	s := p.table.peek(ref.Pgid)
	if ref.Epoch != epoch || s == nil || s.delta == nil || !p.patchedIn(ref.Pgid, epoch) {
		return ref, false, nil
	}
	base, _, changes := decodeDelta(s.delta)
	fresh, err = p.NewDelta(base, epoch, owner, changes)
	return fresh, err == nil, err
}

// Leaf is Page of a leaf whose patch, if it has one, is left to the caller: b is the base then.
// changes is valid as long as a page is.
func (p *Pager) Leaf(ref Ref, base Epoch) (b, changes []byte, err error) {
	return p.SnapshotLeaf(ref, base, newest)
}

// SnapshotLeaf is Leaf for a reader of a version, as Snapshot is Page.
func (p *Pager) SnapshotLeaf(ref Ref, base Epoch, version uint64) (b, changes []byte, err error) {
	if ref.Epoch > base {
		if s := p.table.peek(ref.Pgid); s != nil {
			invariant.Pause()
			if f := atomic.LoadPointer(&s.dirty); f != nil {
				invariant.Pause()
				if s.changed.Load() > version {
					b, err = p.undo.pageBefore(ref.Pgid, s, version)
					return b, nil, err
				}
				return unsafe.Slice((*byte)(f), p.pageSize), nil, nil
			}
			if f := atomic.LoadPointer(&s.delta); f != nil {
				return p.deltaLeaf(f, base)
			}
		}
	}
	b, err = p.fromFile(ref)
	return b, nil, err
}

// deltaLeaf is what the patch at f says, to a snapshot whose newest checkpoint is durable.
func (p *Pager) deltaLeaf(f unsafe.Pointer, durable Epoch) (b, changes []byte, err error) {
	base, _, changes := decodeDelta(f)
	invariant.Pause()
	b, err = p.deltaBase(base, durable)
	invariant.Pause()
	return b, changes, err
}

// deltaBase returns a page that a patch changes. A checkpoint that is not the snapshot's may be at
// it: then it may have a frame, or a patch itself, over one that has none. What the snapshot's
// checkpoint has written may still have its frame, too, which stays for older snapshots only. The
// reference may come from a damaged file, and name a page that has been born since: what is not of
// its epoch is not meant, so that no page is ever the base of its own base.
func (p *Pager) deltaBase(ref Ref, durable Epoch) ([]byte, error) {
	if ref.Epoch > durable {
		if s := p.table.peek(ref.Pgid); s != nil {
			if f := atomic.LoadPointer(&s.dirty); f != nil {
				if b := unsafe.Slice((*byte)(f), p.pageSize); ReadHeader(b).Epoch == ref.Epoch {
					return b, nil
				}
			} else if f := atomic.LoadPointer(&s.delta); f != nil {
				if _, epoch, _ := decodeDelta(f); epoch == ref.Epoch {
					return p.mergedPage(ref, f, durable)
				}
			}
		}
	}
	return p.fromFile(ref)
}

// mergedPage makes the page that ref names of its base and the patch at f, in memory of the Go
// heap: it stays as long as somebody looks at it.
func (p *Pager) mergedPage(ref Ref, f unsafe.Pointer, durable Epoch) ([]byte, error) {
	old, changes, err := p.deltaLeaf(f, durable)
	if err != nil {
		return nil, err
	}
	b := make([]byte, p.pageSize)
	return b, p.MergeDelta(ref, b, old, changes)
}

// MergeDelta makes b the page that ref names, of an older one and its changes, nil for none.
func (p *Pager) MergeDelta(ref Ref, b, base, changes []byte) error {
	copy(b, base)
	SetRef(b, ref)
	if changes == nil {
		return nil
	}
	return p.o.ApplyDelta(b, changes)
}

// mergeInto is Merge for a checkpoint, which no signal of the map must meet: the base is read from
// the file, and proven. It is one that some state may have replaced, and this would be the time at
// which its place had been used again.
func (p *Pager) mergeInto(b []byte, id Pgid, f unsafe.Pointer) error {
	base, epoch, changes := decodeDelta(f)
	if err := p.read(base.Pgid, b); err != nil {
		return err
	}
	if err := p.verifyHeader(base, b); err != nil {
		return err
	}
	return p.MergeDelta(Ref{id, epoch}, b, b, changes)
}

// patchedIn says that the patch of a page, if it has one, is of this epoch. Writer lock.
func (p *Pager) patchedIn(id Pgid, epoch Epoch) bool {
	e := p.patchedAt.peek(id)
	return e != nil && *e == epoch
}

// dropDelta is for a page that is not what it was any more. The memory of earlier epochs goes, or
// has gone, all at once. Writer lock.
func (p *Pager) dropDelta(id Pgid, s *slot) {
	f := atomic.LoadPointer(&s.delta)
	if f == nil {
		return
	}
	atomic.StorePointer(&s.delta, nil)
	if p.patchedIn(id, p.deltas.epoch) {
		p.deltas.release(f)
	}
}
