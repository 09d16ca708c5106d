package pager

import (
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/ebbkv/ebb/internal/invariant"
)

// UndoLog holds the bytes that a transaction overwrites in frames of earlier versions, as long as a
// reader may need them: a page that changes in place need not be copied whole. It is in memory
// only, since no checkpoint has written these pages yet.
//
// A transaction opens it with the list of held versions. Until another reader begins, no reader
// reaches pages that were allocated after the newest of these versions. The transaction may change
// them in place, one operation at a time between Enter and Leave of an UndoWriter, after it has
// recorded the overwritten bytes. A new reader seals the log: from then on the transaction copies
// pages. That reader gets the previous content of each page from the log.
//
// Open needs the writer lock. mu is acquired after every other lock of the store, and the mutexes
// of UndoWriters after it.
type UndoLog struct {
	pool *BufferPool
	_    [120]byte

	// active is set while pages may change. A reader registers and then loads it; Open sets it and
	// then lists the readers. So at least one of the two sees the other.
	active atomic.Bool
	_      [120]byte // readers load active all the time, and the writer locks mu for every row

	mu             sync.Mutex
	epoch          Epoch  // present epoch
	owner          uint64 // serial of the transaction; 0: the log is empty
	newestSnapshot uint64 // newest version that was held at Open
	committed      uint64 // version of the transaction; 0: not committed
	sealed         bool
	maxBytes       int                     // bound on the recorded bytes
	images         map[Pgid]unsafe.Pointer // frames with the previous content of pages, for readers
	byPage         map[Pgid][]undoEntry    // entries by page; built by the first pageBefore

	// writers are the writer of the transaction, and those of its other goroutines, of which the
	// first split ones are active. Merge appends all entries to the first writer, in order; the
	// bytes stay in their writers' buffers.
	writers [MaxUndoWriters]*UndoWriter
	split   int
}

// MaxUndoWriters bounds the number of goroutines that change pages in place at a time.
const MaxUndoWriters = 8

// An UndoWriter records the bytes that one goroutine of the transaction overwrites. Between Split
// and Merge no two goroutines change the same page.
type UndoWriter struct {
	_ [64]byte // no false sharing with other writers

	u     *UndoLog
	index bufferOffset // of the writer, shifted to its bits in a bufferOffset

	mu         sync.Mutex  // held from Enter to Leave
	open       bool        // no reader has sealed the log
	entries    []undoEntry // in the order of the changes
	buf        undoBuffer  // overwritten bytes
	maxBytes   int         // bound on buf.bytes
	maxEntries int         // bound on len(entries)

	_ [64]byte
}

// undoEntry is the previous content of a page from offset off on: n bytes of a writer's buffer, or
// zeros.
type undoEntry struct {
	id     Pgid
	at     bufferOffset // zeros: the bytes were zero
	off, n uint32
}

const zeros = -1

// undoWriterShift is the position of the writer's index in a bufferOffset. A buffer has fewer
// chunks than fit below it.
const undoWriterShift = 56

// The log is bounded by a share of the cache: a transaction that overwrites more copies pages for
// the rest.
const (
	undoFraction = 16
	minUndo      = 64 << 10
	maxUndo      = 16 << 20
)

func (u *UndoLog) init(pool *BufferPool) {
	u.pool, u.maxBytes = pool, int(min(max(pool.o.Cache/undoFraction, minUndo), maxUndo))
	u.writers[0] = &UndoWriter{u: u}
}

// Active reports that a reader must call Seal.
func (u *UndoLog) Active() bool { return u.active.Load() }

// Open starts the log of the transaction that owns pages under owner. held lists the held versions,
// in order; Open calls it after active is set for new readers. Open returns false if readers may
// still need the log of an earlier transaction.
func (u *UndoLog) Open(epoch Epoch, owner uint64, held func() []uint64) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.owner != 0 && u.committed == 0 {
		return false
	}
	u.active.Store(true)
	invariant.Pause()
	versions := held()
	if u.owner != 0 { // sealed and visible: readers that began before may still be open
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

// undoEntryBytes is the accounted size of an entry beside its bytes, an upper bound.
const undoEntryBytes = 64

// start opens the writer for this many more bytes and entries. u.mu is held.
func (k *UndoWriter) start(bytes, entries int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.open, k.maxBytes, k.maxEntries = !k.u.sealed, k.buf.bytes+bytes, len(k.entries)+entries
}

// stop ends recording.
func (k *UndoWriter) stop() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.open = false
}

// Own is the writer of the transaction.
func (u *UndoLog) Own() *UndoWriter { return u.writers[0] }

// Split returns n writers, MaxUndoWriters at most, for goroutines of the transaction that change
// disjoint sets of pages, until Merge. The first is the transaction's own. They share the remaining
// capacity.
func (u *UndoLog) Split(n int) []*UndoWriter {
	u.mu.Lock()
	defer u.mu.Unlock()
	bytes, entries := u.remaining()
	for i := range n {
		if u.writers[i] == nil {
			u.writers[i] = &UndoWriter{u: u, index: bufferOffset(i) << undoWriterShift}
		}
		u.writers[i].start(bytes/n, entries/n)
	}
	u.split = n
	return u.writers[:n]
}

// remaining is the number of bytes and entries that may still be recorded.
func (u *UndoLog) remaining() (bytes, entries int) {
	bytes, entries = u.maxBytes, u.maxBytes/undoEntryBytes
	for _, k := range u.writers {
		if k != nil {
			bytes -= k.buf.bytes
			entries -= len(k.entries)
		}
	}
	return max(bytes, 0), max(entries, 0)
}

// Merge ends Split. No goroutine is between Enter and Leave.
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
	if bytes, entries := u.remaining(); own.open {
		own.start(bytes, entries)
	}
}

// Seal makes a registered reader safe if the log is active.
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
	// Last: another reader that loads false continues at once, and no page may be changing any
	// more.
	u.active.Store(false)
}

// Changeable reports whether the page may be changed in place between Enter and Leave: it is newer
// than the last checkpoint, it has a frame, and no reader reaches it. It is false for the
// transaction's own pages, which need no undo.
func (k *UndoWriter) Changeable(ref Ref) bool {
	u := k.u
	if ref.Epoch != u.epoch {
		return false
	}
	s := u.pool.table.peek(ref.Pgid)
	return s != nil && s.dirty != nil && s.owner > u.newestSnapshot && s.owner < u.owner
}

// Reachable reports whether a page on the path to a Changeable one may be changed too, or is the
// transaction's own.
func (k *UndoWriter) Reachable(ref Ref) bool {
	u := k.u
	s := u.pool.table.peek(ref.Pgid)
	return ref.Epoch == u.epoch && s != nil && s.dirty != nil && s.owner > u.newestSnapshot
}

// Lent reports whether a worker of a parallel apply uses the writer: it may also change child
// references of branches in place. Split and Merge do not run while a writer is in use.
func (k *UndoWriter) Lent() bool { return k.u.split > 0 }

// Enter begins an operation that changes pages in place, or returns false if the log is sealed or
// full. Leave ends the operation.
func (k *UndoWriter) Enter() bool {
	k.mu.Lock()
	if !k.open || k.full() || k.buf.reserve(&k.u.pool.arena, enterPages) != nil {
		k.mu.Unlock()
		return false
	}
	return true
}

// enterPages bounds the recorded bytes of one operation: the header and one cell of a leaf, and a
// row count of each branch above it.
const enterPages = 3

// full needs mu or the writer's goroutine.
func (k *UndoWriter) full() bool { return k.buf.bytes >= k.maxBytes || len(k.entries) >= k.maxEntries }

// Full reports that Enter will return false from now on, so that the transaction can skip the
// search for Changeable pages.
func (k *UndoWriter) Full() bool { return !k.u.active.Load() || k.full() }

// Leave ends the operation that Enter began.
func (k *UndoWriter) Leave() { k.mu.Unlock() }

// Record records bytes [from, to) of a page, which the caller may then change.
func (k *UndoWriter) Record(id Pgid, from, to int) {
	u := k.u
	s := u.pool.table.peek(id)
	if s.owner >= u.owner {
		return // the transaction's own page
	}
	b := unsafe.Slice((*byte)(s.dirty), u.pool.pageSize)
	at := k.buf.add(b[from:to]) | k.index
	k.entries = append(k.entries, undoEntry{id, at, uint32(from), uint32(to - from)})
	s.changed.Store(u.owner)
}

// RecordZeros is Record of bytes that are zero.
func (k *UndoWriter) RecordZeros(id Pgid, from, to int) {
	u := k.u
	s := u.pool.table.peek(id)
	if s.owner >= u.owner || from == to {
		return
	}
	k.entries = append(k.entries, undoEntry{id, zeros, uint32(from), uint32(to - from)})
	s.changed.Store(u.owner)
}

// Committed sets the version of the changes, which is not visible yet.
func (u *UndoLog) Committed(version uint64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.owner != 0 && u.committed == 0 {
		u.committed = version
	}
}

// Publish runs show, which makes version visible, while no reader is between the read of the newest
// version and Seal. Unless a reader has sealed the log, no reader needs the content before version
// any more.
func (u *UndoLog) Publish(version uint64, show func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	show()
	invariant.Pause()
	if u.committed != 0 && version >= u.committed && !u.sealed {
		u.drop()
	}
}

// Rollback restores the pages.
func (u *UndoLog) Rollback() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.owner == 0 || u.committed != 0 {
		return
	}
	all := u.writers[0].entries
	for _, k := range slices.Backward(all) {
		s := u.pool.table.peek(k.id)
		u.restore(k, unsafe.Slice((*byte)(s.dirty), u.pool.pageSize))
	}
	for _, k := range all { // only now may readers read the pages directly
		u.pool.table.peek(k.id).changed.Store(0)
	}
	u.byPage = nil
	u.empty()
	if len(u.images) == 0 {
		u.drop()
		return
	}
	u.committed = 1 // readers use its images
}

func (u *UndoLog) restore(k undoEntry, b []byte) {
	if k.at == zeros {
		clear(b[k.off : k.off+k.n])
		return
	}
	by := u.writers[k.at>>undoWriterShift]
	copy(b[k.off:], by.buf.bytesAt(k.at-by.index, k.n))
}

// drop empties and closes the log.
func (u *UndoLog) drop() {
	u.active.Store(false)
	u.forget()
}

func (u *UndoLog) forget() {
	u.owner, u.committed, u.sealed = 0, 0, false
	for _, f := range u.images {
		u.pool.arena.release(f)
	}
	u.images, u.byPage = nil, nil
	u.empty()
}

// empty removes the entries of all writers and stops them.
func (u *UndoLog) empty() {
	for _, k := range u.writers {
		if k == nil {
			continue
		}
		k.stop()
		k.entries = k.entries[:0]
		if cap(k.entries) > maxKeptEntries {
			k.entries = nil
		}
		k.buf.empty(&u.pool.arena)
	}
}

// maxKeptEntries bounds the capacity that stays for the next transaction, in entries of 24 bytes.
const maxKeptEntries = 128 << 10

// pageBefore returns a page as of version serial, before the transaction changed it.
func (u *UndoLog) pageBefore(id Pgid, s *slot, serial uint64) ([]byte, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := unsafe.Slice((*byte)(atomic.LoadPointer(&s.dirty)), u.pool.pageSize)
	if s.changed.Load() <= serial {
		return now, nil // rolled back since
	}
	f, ok := u.images[id]
	if ok {
		return unsafe.Slice((*byte)(f), u.pool.pageSize), nil
	}
	f, err := u.pool.arena.alloc()
	if err != nil {
		return nil, err
	}
	if u.byPage == nil {
		u.byPage = map[Pgid][]undoEntry{}
		for _, by := range u.writers[:max(u.split, 1)] { // They are stopped: a reader seals first.
			for _, k := range by.entries {
				u.byPage[k.id] = append(u.byPage[k.id], k)
			}
		}
	}
	b := unsafe.Slice((*byte)(f), u.pool.pageSize)
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
