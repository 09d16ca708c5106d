package pager

import "math/bits"

// UsedSet is a set of page numbers below a fixed end.
type UsedSet struct {
	words bitmap
	end   uint64
}

// Used copies the set of pages that the newest committed state uses. Writer lock.
func (a *Allocator) Used() (*UsedSet, error) {
	s := a.space
	u := NewUsedSet(s.end)
	for no, g := range s.groups {
		if !g.loaded {
			if err := s.open(g, uint64(no)); err != nil {
				return nil, err
			}
		}
		copy(u.words[min(uint64(no)*s.perGroup/64, uint64(len(u.words))):], g.used)
	}
	return u, nil
}

// NewUsedSet returns an empty set of pages below end.
func NewUsedSet(end uint64) *UsedSet { return &UsedSet{words: make([]uint64, (end+63)/64), end: end} }

// Empty returns an empty set with the same end.
func (u *UsedSet) Empty() *UsedSet { return &UsedSet{words: make([]uint64, len(u.words)), end: u.end} }

// Add adds a page, and returns false if the set has it or it is past the end.
func (u *UsedSet) Add(id Pgid) bool {
	if uint64(id) >= u.end || u.Has(id) {
		return false
	}
	u.words.set(uint64(id))
	return true
}

// Has reports whether the set has a page.
func (u *UsedSet) Has(id Pgid) bool {
	return uint64(id) < u.end && u.words.has(uint64(id))
}

// Run returns the first run of pages in the set at or after from, of most pages at most; n is 0 if
// there is none.
func (u *UsedSet) Run(from Pgid, most uint64) (id Pgid, n uint64) {
	lo := nextBit(u.words, uint64(from), false)
	if lo >= u.end {
		return 0, 0
	}
	last := min((lo+most)/64+1, uint64(len(u.words))) // A run may be longer than all that is asked for.
	return Pgid(lo), min(nextBit(u.words[:last], lo, true)-lo, most)
}

// Count is the number of pages in the set.
func (u *UsedSet) Count() uint64 { return u.words.count() }

// Diff calls fn for each page that is in only one of two sets with the same end, in order, until fn
// returns false. inU is set if u has the page.
func (u *UsedSet) Diff(v *UsedSet, fn func(id Pgid, inU bool) bool) {
	for i, w := range u.words {
		for d := w ^ v.words[i]; d != 0; d &= d - 1 {
			bit := bits.TrailingZeros64(d)
			if !fn(Pgid(i*64+bit), w&(1<<bit) != 0) {
				return
			}
		}
	}
}
