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
// until another reader comes, and may be changed in place, one operation at a time within Enter and Leave of a Keeper, once what is
// overwritten has been kept. A reader that comes freezes it: from then on the transaction copies pages as before. What that
// reader must not see it gets as it was, page by page, from what was kept.
//
// The opener is the holder of the writer lock. mu is taken after every other lock of the store, and those of keepers after it.
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
	most   int                     // bytes that may be kept
	before map[Pgid]unsafe.Pointer // frames of pages as they were, for readers
	byPage map[Pgid][]kept         // what is kept, by page, for before; made when it is needed

	// keepers are those that there have been: the transaction's own, and of those of its other goroutines the first lent ones now.
	// What they have kept is in order in the first, once they are back, and every one keeps the bytes.
	keepers [MaxKeepers]*Keeper
	lent    int
}

// MaxKeepers is how many goroutines may change pages in place at a time.
const MaxKeepers = 8

// A Keeper keeps what one goroutine of the transaction overwrites. No two change the same page before they are back: see Lend.
type Keeper struct {
	_ [64]byte // what the others take is not beside it

	u  *Undo
	no place // among the keepers, where a place in the stash has it

	mu       sync.Mutex // from Enter to Leave
	open     bool       // no reader has frozen the undo
	kept     []kept     // in the order in which it was overwritten
	stash    stash      // of the bytes that were kept
	most     int        // bytes that may be kept
	mostKept int        // and how many pieces

	_ [64]byte
}

// kept is what stood in a page from offset off on: the n bytes at a place in the stash of a keeper, or zeros.
type kept struct {
	id     Pgid
	at     place // zeros: none are kept
	off, n uint32
}

const zeros = -1

// keeperShift is where in a place the number of the keeper stands. A stash has fewer chunks than there is room for below it.
const keeperShift = 56

// What is kept is bounded by a share of the cache: a transaction that overwrites more copies pages for the rest.
const (
	undoFraction = 16
	leastUndo    = 64 << 10
	maxUndo      = 16 << 20
)

func (u *Undo) init(p *Pager) {
	u.p, u.most = p, int(min(max(p.o.Cache/undoFraction, leastUndo), maxUndo))
	u.keepers[0] = &Keeper{u: u}
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
	u.keepers[0].start(u.most, u.most/keptBytes)
	return true
}

// keptBytes is what a piece counts for, beside its bytes: more than it takes.
const keptBytes = 64

// start opens the keeper, for so many bytes and pieces more. mu of the undo is held.
func (k *Keeper) start(bytes, pieces int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.open, k.most, k.mostKept = !k.u.frozen, k.stash.bytes+bytes, len(k.kept)+pieces
}

// stop is for a keeper that keeps nothing more.
func (k *Keeper) stop() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.open = false
}

// Own is the keeper of the transaction.
func (u *Undo) Own() *Keeper { return u.keepers[0] }

// Lend gives n keepers, MaxKeepers at most, to goroutines of the transaction that change no page of each other's, until Gather. The first
// is the transaction's own. What may be kept is shared among them.
func (u *Undo) Lend(n int) []*Keeper {
	u.mu.Lock()
	defer u.mu.Unlock()
	bytes, pieces := u.left()
	for i := range n {
		if u.keepers[i] == nil {
			u.keepers[i] = &Keeper{u: u, no: place(i) << keeperShift}
		}
		u.keepers[i].start(bytes/n, pieces/n)
	}
	u.lent = n
	return u.keepers[:n]
}

// left is how many bytes and pieces may still be kept.
func (u *Undo) left() (bytes, pieces int) {
	bytes, pieces = u.most, u.most/keptBytes
	for _, k := range u.keepers {
		if k != nil {
			bytes -= k.stash.bytes
			pieces -= len(k.kept)
		}
	}
	return max(bytes, 0), max(pieces, 0)
}

// Gather takes back what was lent. Nobody is between Enter and Leave.
func (u *Undo) Gather() {
	u.mu.Lock()
	defer u.mu.Unlock()
	own := u.keepers[0]
	for _, k := range u.keepers[1:max(u.lent, 1)] {
		k.stop()
		own.kept = append(own.kept, k.kept...)
		k.kept = k.kept[:0]
	}
	u.lent = 0
	if bytes, pieces := u.left(); own.open {
		own.start(bytes, pieces)
	}
}

// Freeze is for a reader that has registered and finds it opened.
func (u *Undo) Freeze() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.opened.Load() {
		return
	}
	u.frozen = true
	for _, k := range u.keepers[:max(u.lent, 1)] {
		k.stop()
	}
	u.opened.Store(false) // last: another reader that finds it so goes on at once, and nobody may be changing a page any more
}

// Changeable says that the page may be changed in place between Enter and Leave: no checkpoint has come since it was born,
// it is in a frame, and nobody reads it. Pages of the transaction itself are not meant: they need no undo.
func (k *Keeper) Changeable(ref Ref) bool {
	u := k.u
	if ref.Epoch != u.epoch {
		return false
	}
	s := u.p.table.peek(ref.Pgid)
	return s != nil && s.dirty != nil && s.owner > u.newest && s.owner < u.owner
}

// Reachable says that the page, on the way to one that is Changeable, may be changed too, or is the transaction's own.
func (k *Keeper) Reachable(ref Ref) bool {
	u := k.u
	s := u.p.table.peek(ref.Pgid)
	return ref.Epoch == u.epoch && s != nil && s.dirty != nil && s.owner > u.newest
}

// Lent reports that the keeper is lent to a worker of a parallel apply: child references of branches may be changed in
// place as well. No keeper is lent or gathered while one is in use.
func (k *Keeper) Lent() bool { return k.u.lent > 0 }

// Enter begins an operation that changes pages in place; not so once the undo is frozen or full. Leave ends it.
func (k *Keeper) Enter() bool {
	k.mu.Lock()
	if !k.open || k.full() || k.stash.reserve(&k.u.p.arena, enterPages) != nil {
		k.mu.Unlock()
		return false
	}
	return true
}

// enterPages is more than one operation keeps: of a leaf its head and one cell, and a row count of each branch above it.
const enterPages = 3

// full is for the goroutine of the keeper.
func (k *Keeper) full() bool { return k.stash.bytes >= k.most || len(k.kept) >= k.mostKept }

// Spent tells the transaction that Enter will say no from now on: it need not look for what is Changeable.
func (k *Keeper) Spent() bool { return !k.u.opened.Load() || k.full() }

// Leave ends what Enter began.
func (k *Keeper) Leave() { k.mu.Unlock() }

// Keep notes what stands in bytes [from, to) of a page, which may be changed then.
func (k *Keeper) Keep(id Pgid, from, to int) {
	u := k.u
	s := u.p.table.peek(id)
	if s.owner >= u.owner {
		return // the transaction's own
	}
	b := unsafe.Slice((*byte)(s.dirty), u.p.pageSize)
	k.kept = append(k.kept, kept{id, k.stash.add(b[from:to]) | k.no, uint32(from), uint32(to - from)})
	s.changed.Store(u.owner)
}

// KeepZeros is Keep of bytes that are zero.
func (k *Keeper) KeepZeros(id Pgid, from, to int) {
	u := k.u
	s := u.p.table.peek(id)
	if s.owner >= u.owner || from == to {
		return
	}
	k.kept = append(k.kept, kept{id, zeros, uint32(from), uint32(to - from)})
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
	all := u.keepers[0].kept
	for _, k := range slices.Backward(all) {
		s := u.p.table.peek(k.id)
		u.restore(k, unsafe.Slice((*byte)(s.dirty), u.p.pageSize))
	}
	for _, k := range all { // now, and not before, readers may look at the pages again
		u.p.table.peek(k.id).changed.Store(0)
	}
	u.byPage = nil
	u.empty()
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
	by := u.keepers[k.at>>keeperShift]
	copy(b[k.off:], by.stash.piece(k.at-by.no, k.n))
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
	u.empty()
}

// empty forgets what the keepers have kept, and lets none of them keep more.
func (u *Undo) empty() {
	for _, k := range u.keepers {
		if k == nil {
			continue
		}
		k.stop()
		k.kept = k.kept[:0]
		if cap(k.kept) > keepUndo {
			k.kept = nil
		}
		k.stash.empty(&u.p.arena)
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
		u.byPage = map[Pgid][]kept{}
		for _, by := range u.keepers[:max(u.lent, 1)] { // They are frozen, or no reader would be here.
			for _, k := range by.kept {
				u.byPage[k.id] = append(u.byPage[k.id], k)
			}
		}
	}
	b := unsafe.Slice((*byte)(f), u.p.pageSize)
	copy(b, now)
	for _, k := range slices.Backward(u.byPage[id]) {
		u.restore(k, b)
	}
	if u.before == nil {
		u.before = map[Pgid]unsafe.Pointer{}
	}
	u.before[id] = f
	return b, nil
}
