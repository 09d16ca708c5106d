package btree

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/pager"
)

// memory is a Writer over Go memory that verifies the contract of the tree: pages of earlier
// transactions never change, a page is freed once, freed pages are not read, and at the end of a
// transaction exactly the pages that the tree reaches are in use.
type memory struct {
	pageSize      int
	pages         []memPage // by page number
	epoch         pager.Epoch
	free          []pager.Pgid // single pages for reuse
	low           bool         // allocate the lowest free page first
	seed          maphash.Seed
	fail          error // returned by New, Edit, StoreDelta and NewExtent
	read          []byte
	readForUpdate int  // calls of ReadForUpdate
	deltas        bool // two thirds of the pages of earlier transactions are CanDelta
	storedDeltas  int  // calls of StoreDelta
	newDeltas     int  // those without a page
}

type memPage struct {
	b     []byte // of an extent, all of it; of a page with changes, its base
	epoch pager.Epoch
	pages int
	owned bool   // by the open transaction
	gone  bool   // freed by the open transaction, or before
	sum   uint64 // of pages that are not owned

	changes []byte
}

func newMemory(pageSize int) *memory {
	return &memory{pageSize: pageSize, pages: make([]memPage, 2, 64), epoch: 1, seed: maphash.MakeSeed()}
}

func (m *memory) PageSize() int { return m.pageSize }

func (m *memory) at(ref pager.Ref) (*memPage, error) {
	if ref.Pgid < 2 || ref.Pgid >= pager.Pgid(len(m.pages)) {
		return nil, damage(ref, "no such page")
	}
	p := &m.pages[ref.Pgid]
	if p.gone || p.b == nil || p.epoch != ref.Epoch {
		return nil, damage(ref, "page %v was freed, or is of epoch %d", ref, p.epoch)
	}
	return p, nil
}

func (m *memory) Page(ref pager.Ref) ([]byte, error) {
	if ref.Pgid < pager.Pgid(len(m.pages)) {
		if p := &m.pages[ref.Pgid]; !p.gone && p.b != nil && p.epoch == ref.Epoch {
			if p.changes != nil {
				b := make([]byte, m.pageSize)
				return b, m.merge(ref, b, p)
			}
			return p.b, nil
		}
	}
	_, err := m.at(ref)
	return nil, err
}

func (m *memory) merge(ref pager.Ref, b []byte, p *memPage) error {
	copy(b, p.b)
	h := pager.ReadHeader(b)
	h.Pgid, h.Epoch = ref.Pgid, ref.Epoch
	pager.WriteHeader(b, h)
	if p.changes == nil {
		return nil
	}
	return ApplyDelta(b, p.changes)
}

func (m *memory) Leaf(ref pager.Ref) (b, changes []byte, err error) {
	p, err := m.at(ref)
	if err != nil {
		return nil, nil, err
	}
	return p.b, p.changes, nil
}

// DeltaBase returns ref itself as the base: memory keeps the changes with the base page.
func (m *memory) DeltaBase(ref pager.Ref) (base pager.Ref, b, changes []byte, err error) {
	b, changes, err = m.Leaf(ref)
	return ref, b, changes, err
}

// Cold is a third of the pages of earlier transactions: a deletion in a cold page and in others
// must have the same result.
func (m *memory) Cold(ref pager.Ref) bool {
	p, err := m.at(ref)
	return err == nil && !p.owned && p.changes == nil && ref.Pgid%3 == 1
}

func (m *memory) ReadForUpdate(ref pager.Ref) ([]byte, error) {
	b, err := m.Page(ref)
	m.read, m.readForUpdate = append(m.read[:0], b...), m.readForUpdate+1
	return m.read, err
}

func (m *memory) Edit(ref pager.Ref, read []byte) (pager.Ref, []byte, error) {
	nref, b, err := m.edit(ref)
	if err == nil && read != nil && !bytes.Equal(read[pager.HeaderSize:], b[pager.HeaderSize:]) {
		err = fmt.Errorf("the read page is not %v", ref)
	}
	return nref, b, err
}

func (m *memory) CanDelta(ref pager.Ref) int {
	p, err := m.at(ref)
	if err != nil || !m.deltas || p.changes == nil && (p.owned || ref.Pgid%3 == 0) {
		return 0
	}
	return m.pageSize / 4
}

func (m *memory) StoreDelta(ref, base pager.Ref, changes []byte) (pager.Ref, error) {
	if ref.IsZero() {
		return m.newDelta(base, changes)
	}
	p, err := m.at(ref)
	if err != nil {
		return ref, err
	}
	if m.fail != nil {
		return ref, m.fail
	}
	m.storedDeltas++
	if p.owned {
		p.changes = slices.Clone(changes)
		return ref, nil
	}
	old := p.b
	nref := m.alloc(1)
	copy(m.pages[nref.Pgid].b, old)
	m.pages[nref.Pgid].changes = slices.Clone(changes)
	m.pages[ref.Pgid].gone = true
	return nref, nil
}

func (m *memory) newDelta(base pager.Ref, changes []byte) (pager.Ref, error) {
	if m.fail != nil {
		return base, m.fail
	}
	m.newDeltas++
	old := m.pages[base.Pgid].b
	nref := m.alloc(1)
	copy(m.pages[nref.Pgid].b, old)
	m.pages[nref.Pgid].changes = slices.Clone(changes)
	return nref, nil
}

func (m *memory) Reassign(ref pager.Ref) (pager.Ref, bool, error) {
	p, err := m.at(ref)
	if err != nil || p.owned || p.changes == nil && ref.Pgid%5 == 0 {
		return ref, false, err
	}
	var nref pager.Ref
	if p.changes != nil {
		nref, err = m.StoreDelta(ref, ref, p.changes)
	} else {
		nref, _, err = m.edit(ref)
	}
	return nref, err == nil, err
}

func (m *memory) PrefetchSlot(pager.Ref)     {}
func (m *memory) Peek(pager.Ref, int) []byte { return nil }

func (m *memory) ReadsAhead() bool      { return false }
func (m *memory) ReadAhead([]pager.Ref) {}
func (m *memory) ReadSoon(pager.Ref)    {}

func (m *memory) Extent(ref pager.Ref, size int) ([]byte, error) {
	p, err := m.at(ref)
	if err != nil {
		return nil, err
	}
	have, kind := binary.LittleEndian.Uint64(p.b[pager.HeaderSize:]), pager.ReadHeader(p.b).Kind
	if kind != pager.KindOverflow || have != uint64(size) {
		return nil, damage(ref, "overflow extent of %d bytes where %d belong", have, size)
	}
	return p.b[pager.ExtentHeader:][:size], nil
}

func (m *memory) alloc(pages int) pager.Ref {
	if pages == 1 && len(m.free) > 0 {
		k := len(m.free) - 1
		if m.low {
			k = slices.Index(m.free, slices.Min(m.free))
		}
		id := m.free[k]
		m.free = slices.Delete(m.free, k, k+1)
		p := &m.pages[id]
		b := p.b
		if len(b) != m.pageSize {
			b = make([]byte, m.pageSize)
		}
		*p = memPage{b: b, epoch: m.epoch, pages: 1, owned: true}
		return pager.Ref{Pgid: id, Epoch: m.epoch}
	}
	id := pager.Pgid(len(m.pages))
	b := make([]byte, pages*m.pageSize)
	m.pages = append(m.pages, memPage{b: b, epoch: m.epoch, pages: pages, owned: true})
	for range pages - 1 {
		m.pages = append(m.pages, memPage{})
	}
	return pager.Ref{Pgid: id, Epoch: m.epoch}
}

func (m *memory) Undo() UndoWriter { return nil }

func (m *memory) edit(ref pager.Ref) (pager.Ref, []byte, error) {
	p, err := m.at(ref)
	if err != nil {
		return ref, nil, err
	}
	if p.owned && p.changes == nil {
		return ref, p.b, nil
	}
	if m.fail != nil {
		return ref, nil, m.fail
	}
	nref, old := ref, *p
	if !p.owned {
		p.gone = true
		nref = m.alloc(1)
	}
	p = &m.pages[nref.Pgid]
	p.changes = nil
	return nref, p.b, m.merge(nref, p.b, &old)
}

func (m *memory) New(kind pager.Kind, level uint8) (pager.Ref, []byte, error) {
	if m.fail != nil {
		return pager.Ref{}, nil, m.fail
	}
	ref := m.alloc(1)
	b := m.pages[ref.Pgid].b
	clear(b)
	pager.WriteHeader(b, pager.Header{Pgid: ref.Pgid, Epoch: ref.Epoch, Kind: kind, Level: level})
	return ref, b, nil
}

func (m *memory) Free(ref pager.Ref) error {
	p, err := m.at(ref)
	if err != nil {
		return err
	}
	p.gone = true
	if p.owned { // no other transaction can reach it
		for i := range p.b {
			p.b[i] = 0xdb
		}
		if p.pages == 1 {
			m.free = append(m.free, ref.Pgid)
		}
	}
	return nil
}

func (m *memory) NewExtent(value []byte) (pager.Ref, error) {
	if m.fail != nil {
		return pager.Ref{}, m.fail
	}
	ref := m.alloc(int(pager.ExtentPages(len(value), m.pageSize)))
	b := m.pages[ref.Pgid].b
	pager.WriteHeader(b, pager.Header{Pgid: ref.Pgid, Epoch: ref.Epoch, Kind: pager.KindOverflow})
	binary.LittleEndian.PutUint64(b[pager.HeaderSize:], uint64(len(value)))
	copy(b[pager.ExtentHeader:], value)
	return ref, nil
}

func (m *memory) FreeExtent(ref pager.Ref, size int) error {
	p, err := m.at(ref)
	if err != nil {
		return err
	}
	if p.pages != int(pager.ExtentPages(size, m.pageSize)) {
		return fmt.Errorf("extent of %d pages freed as one of %d bytes", p.pages, size)
	}
	return m.Free(ref)
}

// MoveExtent moves extents of one page to the lowest free one.
func (m *memory) MoveExtent(ref pager.Ref, size int) (pager.Ref, bool, error) {
	p, err := m.at(ref)
	if err != nil || p.pages > 1 || len(m.free) == 0 || slices.Min(m.free) > ref.Pgid {
		return ref, false, err
	}
	value, err := m.Extent(ref, size)
	if err != nil {
		return ref, false, err
	}
	fresh, err := m.NewExtent(value)
	if err != nil {
		return ref, false, err
	}
	return fresh, true, m.FreeExtent(ref, size)
}

// commit ends the transaction: it owns no page any more, and freed pages are reusable.
func (m *memory) commit(t testing.TB) {
	m.epoch++
	for id := range m.pages {
		p := &m.pages[id]
		if p.b == nil {
			continue
		}
		if !p.owned && p.sum != maphash.Bytes(m.seed, p.b) {
			require.Fail(t, "page changed", "page %d of an earlier transaction was changed", id)
		}
		if p.gone {
			if p.pages > 1 {
				p.b = nil
			} else if !slices.Contains(m.free, pager.Pgid(id)) {
				m.free = append(m.free, pager.Pgid(id))
			}
			p.owned = true // its content is undefined now
			continue
		}
		p.owned = false
		p.sum = maphash.Bytes(m.seed, p.b)
	}
}

// requireSound checks the trees and that they reach exactly the pages in use.
func (m *memory) requireSound(t testing.TB, trees ...Tree) {
	t.Helper()
	seen := map[pager.Pgid]bool{}
	for _, tree := range trees {
		err := Check(m, tree, func(ref pager.Ref, pages int) error {
			if seen[ref.Pgid] {
				require.Fail(t, "page twice", "page %v is reachable twice", ref)
			}
			seen[ref.Pgid] = true
			if p, err := m.at(ref); err == nil && p.pages != pages {
				require.Fail(t, "extent", "extent %v of %d pages visited as %d", ref, p.pages, pages)
			}
			return nil
		}, func(ref pager.Ref, detail string) {
			require.Fail(t, "damage", "page %v: %s", ref, detail)
		})
		require.NoError(t, err)
	}
	for id, p := range m.pages {
		if p.b != nil && !p.gone && !seen[pager.Pgid(id)] {
			require.Fail(t, "leak", "page %d is in use and no tree reaches it", id)
		}
	}
}

// inUse is the number of pages in use.
func (m *memory) inUse() (n int) {
	for _, p := range m.pages {
		if p.b != nil && !p.gone {
			n += p.pages
		}
	}
	return n
}

// fill returns the used share of all leaves, and their number.
func fill(t testing.TB, r Reader, tree Tree) (share float64, leaves int) {
	var sum, space int
	require.NoError(t, Walk(r, tree, func(ref pager.Ref, level uint8) (bool, error) {
		if level == 0 {
			b, err := r.Page(ref)
			if err != nil {
				return false, err
			}
			leaves++
			sum += UsedBytes(b)
			space += payload(b)
		}
		return true, nil
	}))
	return float64(sum) / float64(space), leaves
}
