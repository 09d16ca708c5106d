package pager

import (
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/ebbkv/ebb/internal/invariant"
)

// UndoLog is what a transaction overwrites in frames that earlier versions reach, as long as one of
// them may be read: a page that changes where it is need not be copied whole. Nothing of it is ever
// in the file: it is about pages that no checkpoint has written yet.
//
// A transaction opens it when it knows which versions are held. Pages born after the newest of
// these are nobody else's until another reader comes, and may be changed in place, one operation at
// a time within Enter and Leave of a Keeper, once what is overwritten has been kept. A reader that
// comes freezes it: from then on the transaction copies pages as before. What that reader must not
// see it gets as it was, page by page, from what was kept.
//
// The opener is the holder of the writer lock. mu is taken after every other lock of the store, and
// those of keepers after it.
type UndoLog struct {
	p *Pager
	_ [120]byte

	// active says that pages may be changing: whoever has registered as a reader looks at it, and
	// whoever has set it looks at the readers, so that one of the two sees the other.
	active atomic.Bool
	_      [120]byte // readers look at it all the time, and the writer takes mu with every row

	mu             sync.Mutex
	epoch          Epoch  // present one
	owner          uint64 // of the transaction; 0: nothing is kept
	newestSnapshot uint64 // of the versions that were held when it began
	committed      uint64 // the version of the transaction; 0: it has not been committed
	sealed         bool
	maxBytes       int                     // bytes that may be kept
	images         map[Pgid]unsafe.Pointer // frames of pages as they were, for readers
	byPage         map[Pgid][]undoEntry    // what is kept, by page, for before; made when it is needed

	// writers are those that there have been: the transaction's own, and of those of its other
	// goroutines the first lent ones now. What they have kept is in order in the first, once they
	// are back, and every one keeps the bytes.
	writers [MaxUndoWriters]*UndoWriter
	split   int
}

// MaxUndoWriters is how many goroutines may change pages in place at a time.
const MaxUndoWriters = 8

// A Keeper keeps what one goroutine of the transaction overwrites. No two change the same page
// before they are back: see Lend.
type UndoWriter struct {
	_ [64]byte // what the others take is not beside it

	u     *UndoLog
	index bufferOffset // among the keepers, where a place in the stash has it

	mu         sync.Mutex  // from Enter to Leave
	open       bool        // no reader has frozen the undo
	entries    []undoEntry // in the order in which it was overwritten
	buf        undoBuffer  // of the bytes that were kept
	maxBytes   int         // bytes that may be kept
	maxEntries int         // and how many pieces

	_ [64]byte
}

// undoEntry is what stood in a page from offset off on: the n bytes at a place in the stash of a
// keeper, or zeros.
type undoEntry struct {
	id     Pgid
	at     bufferOffset // zeros: none are kept
	off, n uint32
}

const zeros = -1

// undoWriterShift is where in a place the number of the keeper stands. A stash has fewer chunks
// than there is room for below it.
const undoWriterShift = 56

// What is kept is bounded by a share of the cache: a transaction that overwrites more copies pages
// for the rest.
const (
	undoFraction = 16
	minUndo      = 64 << 10
	maxUndo      = 16 << 20
)

func (u *UndoLog) init(p *Pager) {
	u.p, u.maxBytes = p, int(min(max(p.o.Cache/undoFraction, minUndo), maxUndo))
	u.writers[0] = &UndoWriter{u: u}
}

// Undo is that of the pager: there is one writer.
func (p *Pager) Undo() *UndoLog { return &p.undo }

// Active says that a reader has to Freeze.
func (u *UndoLog) Active() bool { return u.active.Load() }

// Open begins to keep what the transaction overwrites that owns pages under owner. held lists the
// versions that are held, in order; it is asked after new readers can see that they have to Freeze.
// False: what an earlier transaction overwrote may still be asked for.
func (u *UndoLog) Open(epoch Epoch, owner uint64, held func() []uint64) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.owner != 0 && u.committed == 0 {
		return false
	}
	u.active.Store(true)
	invariant.Pause()
	versions := held()
	if u.owner != 0 { // frozen, and visible: those who came before it was may be there yet
		if len(versions) > 0 && versions[0] < u.owner {
			u.active.Store(false)
			return false
		}
		u.forget()
	}
	u.epoch, u.owner, u.newestSnapshot, u.sealed = epoch, owner, 0, false
	if n := len(versions); n > 0 {
		u.newestSnapshot = versions[n-1]
	}
	u.writers[0].start(u.maxBytes, u.maxBytes/undoEntryBytes)
	return true
}

// undoEntryBytes is what a piece counts for, beside its bytes: more than it takes.
const undoEntryBytes = 64

// start opens the keeper, for so many bytes and pieces more. mu of the undo is held.
func (k *UndoWriter) start(bytes, pieces int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.open, k.maxBytes, k.maxEntries = !k.u.sealed, k.buf.bytes+bytes, len(k.entries)+pieces
}

// stop is for a keeper that keeps nothing more.
func (k *UndoWriter) stop() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.open = false
}

// Own is the keeper of the transaction.
func (u *UndoLog) Own() *UndoWriter { return u.writers[0] }

// Split gives n keepers, MaxUndoWriters at most, to goroutines of the transaction that change no
// page of each other's, until Gather. The first is the transaction's own. What may be kept is
// shared among them.
func (u *UndoLog) Split(n int) []*UndoWriter {
	u.mu.Lock()
	defer u.mu.Unlock()
	bytes, pieces := u.remaining()
	for i := range n {
		if u.writers[i] == nil {
			u.writers[i] = &UndoWriter{u: u, index: bufferOffset(i) << undoWriterShift}
		}
		u.writers[i].start(bytes/n, pieces/n)
	}
	u.split = n
	return u.writers[:n]
}

// remaining is how many bytes and pieces may still be kept.
func (u *UndoLog) remaining() (bytes, pieces int) {
	bytes, pieces = u.maxBytes, u.maxBytes/undoEntryBytes
	for _, k := range u.writers {
		if k != nil {
			bytes -= k.buf.bytes
			pieces -= len(k.entries)
		}
	}
	return max(bytes, 0), max(pieces, 0)
}

// Merge takes back what was lent. Nobody is between Enter and Leave.
func (u *UndoLog) Merge() {
	u.mu.Lock()
	defer u.mu.Unlock()
	own := u.writers[0]
	for _, k := range u.writers[1:max(u.split, 1)] {
		k.stop()
		own.entries = append(own.entries, k.entries...)
		k.entries = k.entries[:0]
	}
	u.split = 0
	if bytes, pieces := u.remaining(); own.open {
		own.start(bytes, pieces)
	}
}

// Seal is for a reader that has registered and finds it opened.
func (u *UndoLog) Seal() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.active.Load() {
		return
	}
	u.sealed = true
	for _, k := range u.writers[:max(u.split, 1)] {
		k.stop()
	}
	// last: another reader that finds it so goes on at once, and nobody may be changing a page any
	// more
	u.active.Store(false)
}

// Changeable says that the page may be changed in place between Enter and Leave: no checkpoint has
// come since it was born, it is in a frame, and nobody reads it. Pages of the transaction itself
// are not meant: they need no undo.
func (k *UndoWriter) Changeable(ref Ref) bool {
	u := k.u
	if ref.Epoch != u.epoch {
		return false
	}
	s := u.p.table.peek(ref.Pgid)
	return s != nil && s.dirty != nil && s.owner > u.newestSnapshot && s.owner < u.owner
}

// Reachable says that the page, on the way to one that is Changeable, may be changed too, or is the
// transaction's own.
func (k *UndoWriter) Reachable(ref Ref) bool {
	u := k.u
	s := u.p.table.peek(ref.Pgid)
	return ref.Epoch == u.epoch && s != nil && s.dirty != nil && s.owner > u.newestSnapshot
}

// Lent reports that the keeper is lent to a worker of a parallel apply: child references of
// branches may be changed in place as well. No keeper is lent or gathered while one is in use.
func (k *UndoWriter) Lent() bool { return k.u.split > 0 }

// Enter begins an operation that changes pages in place; not so once the undo is frozen or full.
// Leave ends it.
func (k *UndoWriter) Enter() bool {
	k.mu.Lock()
	if !k.open || k.full() || k.buf.reserve(&k.u.p.arena, enterPages) != nil {
		k.mu.Unlock()
		return false
	}
	return true
}

// enterPages is more than one operation keeps: of a leaf its head and one cell, and a row count of
// each branch above it.
const enterPages = 3

// full is for the goroutine of the keeper.
func (k *UndoWriter) full() bool { return k.buf.bytes >= k.maxBytes || len(k.entries) >= k.maxEntries }

// Full tells the transaction that Enter will say no from now on: it need not look for what is
// Changeable.
func (k *UndoWriter) Full() bool { return !k.u.active.Load() || k.full() }

// Leave ends what Enter began.
func (k *UndoWriter) Leave() { k.mu.Unlock() }

// Record notes what stands in bytes [from, to) of a page, which may be changed then.
func (k *UndoWriter) Record(id Pgid, from, to int) {
	u := k.u
	s := u.p.table.peek(id)
	if s.owner >= u.owner {
		return // the transaction's own
	}
	b := unsafe.Slice((*byte)(s.dirty), u.p.pageSize)
	k.entries = append(
		k.entries,
		undoEntry{id, k.buf.add(b[from:to]) | k.index, uint32(from), uint32(to - from)},
	)
	s.changed.Store(u.owner)
}

// RecordZeros is Keep of bytes that are zero.
func (k *UndoWriter) RecordZeros(id Pgid, from, to int) {
	u := k.u
	s := u.p.table.peek(id)
	if s.owner >= u.owner || from == to {
		return
	}
	k.entries = append(k.entries, undoEntry{id, zeros, uint32(from), uint32(to - from)})
	s.changed.Store(u.owner)
}

// Committed says which version holds the changes. It is not visible yet.
func (u *UndoLog) Committed(version uint64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.owner != 0 && u.committed == 0 {
		u.committed = version
	}
}

// Publish runs show, which makes version visible, at a moment at which nobody is between looking
// for the newest version and freezing. Nobody asks any more for what was before it unless somebody
// has.
func (u *UndoLog) Publish(version uint64, show func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	show()
	invariant.Pause()
	if u.committed != 0 && version >= u.committed && !u.sealed {
		u.drop()
	}
}

// Rollback makes the pages what they were.
func (u *UndoLog) Rollback() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.owner == 0 || u.committed != 0 {
		return
	}
	all := u.writers[0].entries
	for _, k := range slices.Backward(all) {
		s := u.p.table.peek(k.id)
		u.restore(k, unsafe.Slice((*byte)(s.dirty), u.p.pageSize))
	}
	for _, k := range all { // now, and not before, readers may look at the pages again
		u.p.table.peek(k.id).changed.Store(0)
	}
	u.byPage = nil
	u.empty()
	if len(u.images) == 0 {
		u.drop()
		return
	}
	u.committed = 1 // readers have pages of it
}

func (u *UndoLog) restore(k undoEntry, b []byte) {
	if k.at == zeros {
		clear(b[k.off : k.off+k.n])
		return
	}
	by := u.writers[k.at>>undoWriterShift]
	copy(b[k.off:], by.buf.bytesAt(k.at-by.index, k.n))
}

// drop forgets everything, and is not opened any more.
func (u *UndoLog) drop() {
	u.active.Store(false)
	u.forget()
}

func (u *UndoLog) forget() {
	u.owner, u.committed, u.sealed = 0, 0, false
	for _, f := range u.images {
		u.p.arena.release(f)
	}
	u.images, u.byPage = nil, nil
	u.empty()
}

// empty forgets what the keepers have kept, and lets none of them keep more.
func (u *UndoLog) empty() {
	for _, k := range u.writers {
		if k == nil {
			continue
		}
		k.stop()
		k.entries = k.entries[:0]
		if cap(k.entries) > keepUndoBytes {
			k.entries = nil
		}
		k.buf.empty(&u.p.arena)
	}
}

// keepUndoBytes is how many entries stay for the next transaction, of 24 bytes each.
const keepUndoBytes = 128 << 10

// pageBefore returns a page as it was before the transaction changed it whose version is above
// serial.
func (u *UndoLog) pageBefore(id Pgid, s *slot, serial uint64) ([]byte, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := unsafe.Slice((*byte)(atomic.LoadPointer(&s.dirty)), u.p.pageSize)
	if s.changed.Load() <= serial {
		return now, nil // rolled back meanwhile
	}
	f, ok := u.images[id]
	if ok {
		return unsafe.Slice((*byte)(f), u.p.pageSize), nil
	}
	f, err := u.p.arena.alloc()
	if err != nil {
		return nil, err
	}
	if u.byPage == nil {
		u.byPage = map[Pgid][]undoEntry{}
		for _, by := range u.writers[:max(u.split, 1)] { // They are frozen, or no reader would be here.
			for _, k := range by.entries {
				u.byPage[k.id] = append(u.byPage[k.id], k)
			}
		}
	}
	b := unsafe.Slice((*byte)(f), u.p.pageSize)
	copy(b, now)
	for _, k := range slices.Backward(u.byPage[id]) {
		u.restore(k, b)
	}
	if u.images == nil {
		u.images = map[Pgid]unsafe.Pointer{}
	}
	u.images[id] = f
	return b, nil
}
