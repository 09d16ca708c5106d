package pager

import (
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/ebbkv/ebb/internal/invariant"
)

// Undo is what a transaction overwrites in frames that earlier versions reach, as long as one of them may be read: a page
// that changes where it is need not be copied whole. Nothing of it is ever in the file: it is about pages that no
// checkpoint has written yet.
//
// A transaction opens it when it knows which versions are held. Pages born after the newest of these are nobody else's
// until another reader comes, and may be changed in place, one operation at a time within Enter and Leave, once what is
// overwritten has been kept. A reader that comes freezes it: from then on the transaction copies pages as before. What that
// reader must not see it gets as it was, page by page, from what was kept.
//
// The opener is the holder of the writer lock. mu is taken after every other lock of the store.
type Undo struct {
	p *Pager
	_ [120]byte

	// opened says that pages may be changing: whoever has registered as a reader looks at it, and whoever has set it looks at
	// the readers, so that one of the two sees the other.
	opened atomic.Bool
	_      [120]byte // readers look at it all the time, and the writer takes mu with every row

	mu     sync.Mutex
	epoch  Epoch  // present one
	owner  uint64 // of the transaction; 0: nothing is kept
	newest uint64 // of the versions that were held when it began
	seen   uint64 // the version of the transaction; 0: it has not been committed
	frozen bool
	kept   []kept
	stash  stash                   // of the bytes that were kept
	most   int                     // bytes that may be kept
	before map[Pgid]unsafe.Pointer // frames of pages as they were, for readers
	byPage map[Pgid][]int32        // kept by page, for before; made when it is needed
}

// kept is what stood in a page from offset off on: the n bytes at a place in the stash, or zeros.
type kept struct {
	id     Pgid
	at     place // zeros: none are kept
	off, n uint32
}

const zeros = -1

// What is kept is bounded by a share of the cache: a transaction that overwrites more copies pages for the rest.
const (
	undoFraction = 16
	leastUndo    = 64 << 10
	maxUndo      = 16 << 20
)

func (u *Undo) init(p *Pager) {
	u.p, u.most = p, int(min(max(p.o.Cache/undoFraction, leastUndo), maxUndo))
}

// Undo is that of the pager: there is one writer.
func (p *Pager) Undo() *Undo { return &p.undo }

// Opened says that a reader has to Freeze.
func (u *Undo) Opened() bool { return u.opened.Load() }

// Open begins to keep what the transaction overwrites that owns pages under owner. held lists the versions that are held, in
// order; it is asked after new readers can see that they have to Freeze. False: what an earlier transaction overwrote may
// still be asked for.
func (u *Undo) Open(epoch Epoch, owner uint64, held func() []uint64) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.owner != 0 && u.seen == 0 {
		return false
	}
	u.opened.Store(true)
	invariant.Pause()
	versions := held()
	if u.owner != 0 { // frozen, and visible: those who came before it was may be there yet
		if len(versions) > 0 && versions[0] < u.owner {
			u.opened.Store(false)
			return false
		}
		u.forget()
	}
	u.epoch, u.owner, u.newest, u.frozen = epoch, owner, 0, false
	if n := len(versions); n > 0 {
		u.newest = versions[n-1]
	}
	return true
}

// Freeze is for a reader that has registered and finds it opened.
func (u *Undo) Freeze() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.opened.Load() {
		u.opened.Store(false)
		u.frozen = true
	}
}

// Changeable says that the page may be changed in place between Enter and Leave: no checkpoint has come since it was born,
// it is in a frame, and nobody reads it. Pages of the transaction itself are not meant: they need no undo.
func (u *Undo) Changeable(ref Ref) bool {
	if ref.Epoch != u.epoch {
		return false
	}
	s := u.p.table.peek(ref.Pgid)
	return s != nil && s.dirty != nil && s.owner > u.newest && s.owner < u.owner
}

// Reachable says that the page, on the way to one that is Changeable, may be changed too, or is the transaction's own.
func (u *Undo) Reachable(ref Ref) bool {
	s := u.p.table.peek(ref.Pgid)
	return ref.Epoch == u.epoch && s != nil && s.dirty != nil && s.owner > u.newest
}

// Enter begins an operation that changes pages in place; not so once the undo is frozen or full. Leave ends it.
func (u *Undo) Enter() bool {
	u.mu.Lock()
	if u.frozen || u.owner == 0 || u.full() || u.stash.reserve(&u.p.arena, enterPages) != nil {
		u.mu.Unlock()
		return false
	}
	return true
}

// enterPages is more than one operation keeps: of a leaf its head and one cell, and a row count of each branch above it.
const enterPages = 3

// full is for the transaction, or for who holds mu.
func (u *Undo) full() bool { return u.stash.bytes > u.most || len(u.kept) > u.most/64 }

// Spent tells the transaction that Enter will say no from now on: it need not look for what is Changeable.
func (u *Undo) Spent() bool { return !u.opened.Load() || u.full() }

// Leave ends what Enter began.
func (u *Undo) Leave() { u.mu.Unlock() }

// Keep notes what stands in bytes [from, to) of a page, which may be changed then.
func (u *Undo) Keep(id Pgid, from, to int) {
	s := u.p.table.peek(id)
	if s.owner >= u.owner {
		return // the transaction's own
	}
	b := unsafe.Slice((*byte)(s.dirty), u.p.pageSize)
	u.kept = append(u.kept, kept{id, u.stash.add(b[from:to]), uint32(from), uint32(to - from)})
	s.changed.Store(u.owner)
}

// KeepZeros is Keep of bytes that are zero.
func (u *Undo) KeepZeros(id Pgid, from, to int) {
	s := u.p.table.peek(id)
	if s.owner >= u.owner || from == to {
		return
	}
	u.kept = append(u.kept, kept{id, zeros, uint32(from), uint32(to - from)})
	s.changed.Store(u.owner)
}

// Committed says which version holds the changes. It is not visible yet.
func (u *Undo) Committed(version uint64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.owner != 0 && u.seen == 0 {
		u.seen = version
	}
}

// Show runs show, which makes version visible, at a moment at which nobody is between looking for the newest version and
// freezing. Nobody asks any more for what was before it unless somebody has.
func (u *Undo) Show(version uint64, show func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	show()
	invariant.Pause()
	if u.seen != 0 && version >= u.seen && !u.frozen {
		u.drop()
	}
}

// Rollback makes the pages what they were.
func (u *Undo) Rollback() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.owner == 0 || u.seen != 0 {
		return
	}
	for i := len(u.kept) - 1; i >= 0; i-- {
		s := u.p.table.peek(u.kept[i].id)
		u.restore(u.kept[i], unsafe.Slice((*byte)(s.dirty), u.p.pageSize))
	}
	for _, k := range u.kept { // now, and not before, readers may look at the pages again
		u.p.table.peek(k.id).changed.Store(0)
	}
	u.kept, u.byPage = u.kept[:0], nil
	u.stash.empty(&u.p.arena)
	if len(u.before) == 0 {
		u.drop()
		return
	}
	u.seen = 1 // readers have pages of it
}

func (u *Undo) restore(k kept, b []byte) {
	if k.at == zeros {
		clear(b[k.off : k.off+k.n])
		return
	}
	copy(b[k.off:], u.stash.piece(k.at, k.n))
}

// drop forgets everything, and is not opened any more.
func (u *Undo) drop() {
	u.opened.Store(false)
	u.forget()
}

func (u *Undo) forget() {
	u.owner, u.seen, u.frozen = 0, 0, false
	for _, f := range u.before {
		u.p.arena.release(f)
	}
	u.before, u.byPage = nil, nil
	u.kept = u.kept[:0]
	u.stash.empty(&u.p.arena)
	if cap(u.kept) > keepUndo {
		u.kept = nil
	}
}

// keepUndo is how many entries stay for the next transaction, of 24 bytes each.
const keepUndo = 128 << 10

// earlier returns a page as it was before the transaction changed it whose version is above serial.
func (u *Undo) earlier(id Pgid, s *slot, serial uint64) ([]byte, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := unsafe.Slice((*byte)(atomic.LoadPointer(&s.dirty)), u.p.pageSize)
	if s.changed.Load() <= serial {
		return now, nil // rolled back meanwhile
	}
	f, ok := u.before[id]
	if ok {
		return unsafe.Slice((*byte)(f), u.p.pageSize), nil
	}
	f, err := u.p.arena.alloc()
	if err != nil {
		return nil, err
	}
	if u.byPage == nil {
		u.byPage = map[Pgid][]int32{}
		for i, k := range u.kept {
			u.byPage[k.id] = append(u.byPage[k.id], int32(i))
		}
	}
	b := unsafe.Slice((*byte)(f), u.p.pageSize)
	copy(b, now)
	for _, i := range slices.Backward(u.byPage[id]) {
		u.restore(u.kept[i], b)
	}
	if u.before == nil {
		u.before = map[Pgid]unsafe.Pointer{}
	}
	u.before[id] = f
	return b, nil
}
