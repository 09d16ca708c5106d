package btree

import (
	"bytes"

	"github.com/ebbkv/ebb/internal/prefetch"
	"github.com/ebbkv/ebb/pager"
)

// A scout looks for ways ahead of who carries changes out, on another processor: see Guide.

// Land is what ways are looked for in.
type Land interface {
	// Page is that of a Reader.
	Page(ref pager.Ref) ([]byte, error)
	// Near is that of a Reader.
	Near(ref pager.Ref, n int) []byte
	// Ask is that of a Writer.
	Ask(ref pager.Ref)
}

// Ahead is the land that a scout looks ahead in.
type Ahead interface {
	Land
	// Fetch reads a leaf, or the base of one that is patched, if it is in the file, where nothing changes it, and returns its bytes. Of one in
	// a frame, which may be changing, it returns the bytes and looks at none. nil: it is not in memory.
	Fetch(ref pager.Ref) ([]byte, error)
}

// Scouted is the way to the leaf of a key, and where it led to.
type Scouted struct {
	Key  []byte
	way  way
	ref  pager.Ref // of the leaf
	from []byte    // where a branch says that
	leaf []byte    // nil: it is not in memory
}

// A Guide knows a state of a tree, in which a scout finds ways, and where the tree has been bent since. What the scout reads of that state does not
// change: its branches, but for the rows that they count. So it needs no lock while a transaction that began with that state is changing the
// tree. The transaction tells the guide which branches it has bent, and ways that come through these are looked for again from there down.
//
// The fields but for land and tree belong to the transaction.
type Guide struct {
	land  Ahead
	tree  Tree
	bent  [bentWords]uint64 // a set of branches at level 1 that have been, and perhaps of others
	floor uint8             // the highest level above 1 at which one has been; 0: none
}

const bentWords = 16

// Begin makes t, of which there are branches in land, the state. It says false if its ways are too long to be noted.
func (g *Guide) Begin(land Ahead, t Tree) bool {
	g.land, g.tree, g.bent, g.floor = land, t, [bentWords]uint64{}, 0
	return t.Depth > 1 && t.Depth-1 <= wayLevels
}

// Scout finds the ways to the leaves of these keys, MaxWays at most, and asks for the memory that changing them will need first. It is for the
// goroutine of the scout.
func (g *Guide) Scout(found []Scouted) error {
	var d descent
	for i := range found {
		d.keys[i] = found[i].Key
	}
	if err := d.lead(g.land, g.tree, len(found), false); err != nil {
		return err
	}
	for i := range found {
		leaf, err := g.land.Fetch(d.refs[i])
		if err != nil {
			return err
		}
		f := &found[i]
		f.way, f.ref, f.from, f.leaf = d.ways[i], d.refs[i], d.from[i], leaf
	}
	return nil
}

// bend is told that the branch at level on the way of key is not what it was. It may have been bent before.
func (g *Guide) bend(key []byte, level uint8) {
	if level > 1 {
		g.floor = max(g.floor, level)
		return
	}
	var d descent
	d.keys[0] = key
	if d.lead(g.land, g.tree, 1, false) != nil { // Whoever goes there again is told of it.
		g.floor = wayLevels
		return
	}
	i, bit := bentAt(d.ways[0])
	g.bent[i] |= bit
}

// bentAt is where the branch at level 1 of a way is in the set.
func bentAt(w way) (i int, bit uint64) {
	const log2 = 10 // of its bits
	h := w.to >> 16 * 0x9E3779B97F4A7C15 >> (64 - log2)
	return int(h / 64), 1 << (h % 64)
}

// Follow takes the ways of these changes from what the scout of the Guide has found, unless it looked for other keys. It asks for what the scout has looked
// at, which is in another processor's cache, if in any.
func (s *Ways) Follow(w Writer, found []Scouted, changes []Change) bool {
	s.hold, s.n = false, len(changes)
	var near [MaxWays][]byte
	for i := range changes {
		f := &found[i]
		if !bytes.Equal(f.Key, changes[i].Key) {
			return false
		}
		by := f.way
		if at, bit := bentAt(by); s.Guide.bent[at]&bit != 0 {
			by.from = 2
		}
		by.from = max(by.from, s.Guide.floor+1)
		s.of[i] = by
		near[i] = f.leaf[:min(nearFound, len(f.leaf))]
		w.Ask(f.ref)
		prefetch.Bytes(f.from)
	}
	prefetch.Each(near[:len(changes)])
	for i := range changes {
		if b := found[i].leaf; b != nil && looksLikeLeaf(b) {
			askCell(b, count(b), &changes[i])
		}
	}
	s.hold = true
	return true
}

// looksLikeLeaf says that askCell finds its way in b. It may not be so where a damaged file refers to a page that it counts as free: such a page may have been
// written anew since it was proved.
func looksLikeLeaf(b []byte) bool {
	return ld32(b, offKind)&0xffff == place(0) && offLeafHeads+leafEntry*count(b) <= len(b)
}

// nearFound is how much of a leaf is asked for, in bytes: as a rule the header, heads and slots.
const nearFound = 256
