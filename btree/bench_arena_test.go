package btree

import (
	"encoding/binary"

	"github.com/ebbkv/ebb/pager"
)

// arena is a minimal Writer: pages in one block of memory, freed pages are reused after the next
// commit. It verifies nothing and has no extents.
type arena struct {
	pageSize int
	mem      []byte
	owner    []uint32 // by page: the transaction that made it
	tx       uint32
	next     pager.Pgid
	free     []pager.Pgid // reusable now
	later    []pager.Pgid // reusable after commit
	copied   int
}

func newArena(pageSize, bytes int) *arena {
	return &arena{
		pageSize: pageSize,
		mem:      make([]byte, bytes),
		owner:    make([]uint32, bytes/pageSize),
		tx:       1,
		next:     2,
	}
}

func (a *arena) PageSize() int { return a.pageSize }

func (a *arena) page(id pager.Pgid) []byte {
	at := int(id) * a.pageSize
	return a.mem[at : at+a.pageSize : at+a.pageSize]
}

func (a *arena) Page(ref pager.Ref) ([]byte, error) { return a.page(ref.Pgid), nil }

func (a *arena) Leaf(ref pager.Ref) (b, changes []byte, err error) { return a.page(ref.Pgid), nil, nil }

func (a *arena) CanDelta(pager.Ref) int { return 0 }

func (a *arena) Cold(pager.Ref) bool { return false }

func (a *arena) ReadForUpdate(ref pager.Ref) ([]byte, error) { return a.Page(ref) }

func (a *arena) DeltaBase(pager.Ref) (base pager.Ref, b, changes []byte, err error) {
	panic("arena: no deltas")
}

func (a *arena) StoreDelta(ref, base pager.Ref, changes []byte) (pager.Ref, error) {
	panic("arena: no deltas")
}

func (a *arena) Extent(ref pager.Ref, size int) ([]byte, error) { panic("arena: no extents") }
func (a *arena) PrefetchSlot(pager.Ref)                         {}
func (a *arena) ReadsAhead() bool                               { return false }
func (a *arena) ReadAhead([]pager.Ref)                          {}
func (a *arena) ReadSoon(pager.Ref)                             {}
func (a *arena) Peek(ref pager.Ref, n int) []byte               { return a.page(ref.Pgid)[:n] }

func (a *arena) Owned(ref pager.Ref) bool { return a.owner[ref.Pgid] == a.tx }

func (a *arena) alloc() pager.Pgid {
	id := a.next
	if n := len(a.free); n > 0 {
		id = a.free[n-1]
		a.free = a.free[:n-1]
	} else {
		a.next++
	}
	a.owner[id] = a.tx
	return id
}

func (a *arena) Undo() UndoWriter { return nil }

func (a *arena) Edit(ref pager.Ref, _ []byte) (pager.Ref, []byte, error) {
	if a.owner[ref.Pgid] == a.tx {
		return ref, a.page(ref.Pgid), nil
	}
	id := a.alloc()
	b := a.page(id)
	copy(b, a.page(ref.Pgid))
	binary.LittleEndian.PutUint64(b[8:], uint64(id))
	a.later = append(a.later, ref.Pgid)
	a.copied++
	return pager.Ref{Pgid: id, Epoch: 1}, b, nil
}

func (a *arena) New(kind pager.Kind, level uint8) (pager.Ref, []byte, error) {
	id := a.alloc()
	b := a.page(id)
	clear(b)
	pager.WriteHeader(b, pager.Header{Pgid: id, Epoch: 1, Kind: kind, Level: level})
	return pager.Ref{Pgid: id, Epoch: 1}, b, nil
}

func (a *arena) Free(ref pager.Ref) error {
	if a.Owned(ref) {
		a.free = append(a.free, ref.Pgid)
	} else {
		a.later = append(a.later, ref.Pgid)
	}
	return nil
}

func (a *arena) NewExtent([]byte) (pager.Ref, error) { panic("arena: no extents") }
func (a *arena) FreeExtent(pager.Ref, int) error     { panic("arena: no extents") }
func (a *arena) commit() {
	a.tx++
	a.free = append(a.free, a.later...)
	a.later = a.later[:0]
}
