package btree

import "github.com/ebbkv/ebb/internal/invariant"

// A Change puts a row or deletes one.
type Change struct {
	Key, Value []byte
	Tag        int64 // 0 for none
	// Delete deletes. Tag means nothing then, and Value is, unless nil, the one that the row must
	// have to be found: it stands in its page.
	Delete bool
}

// PathHints are the ways down to the leaves of up to MaxHints changes of one tree, which are
// carried out one after the other. They are looked for together, and each change goes its own, as
// far as that holds.
type PathHints struct {
	valid bool
	n     int
	hints [MaxHints]pathHint
}

// A way is how to come from the root of a tree to the leaf where a key is or belongs: the child to
// take at each level. It holds, whatever is copied or changes in leaves, until a branch on it gets
// or loses a child or another separator: from there down it is to be looked for again. It is small
// enough to be handed on in registers.
type pathHint struct {
	to   uint64 // 16 bits for each level, those of level 1 are the lowest
	from uint8  // the lowest level at which it is known; 0: at none
}

// pathHintLevels is how many levels of branches a way leads through. In a tree that is deeper no
// way is noted.
const pathHintLevels = 4

// record makes i the child to take at level, for which none was noted before. Levels above it were
// noted before.
func (w *pathHint) record(level uint8, i int) {
	w.to |= uint64(uint16(i)) << (16 * (level - 1) % 64)
	w.from = level
}

// complete says that it leads to the leaf.
func (w pathHint) complete() bool { return w.from == 1 }

// child returns the child of a branch of n children at level that may hold key.
func (w pathHint) child(b []byte, n int, level uint8, key []byte) int {
	i := int(uint16(w.to >> (16 * (level - 1) % 64)))
	if level < w.from || w.from == 0 || i >= n {
		return branchSearch(b, n, key)
	}
	if invariant.On && i != branchSearch(b, n, key) {
		invariant.Fail("btree: way of %x to child %d of %d at level %d", key, i, n, level)
	}
	return i
}

// invalidate is told that a branch at level on the way of the i-th change, and perhaps others on it
// below that one, are not what they were. Ways that come through it hold above it only. Where the
// i-th is not known itself, at level or above, neither are those that share it there: what bent it
// has bent them.
func (s *PathHints) invalidate(i int, level uint8) {
	by := &s.hints[i]
	if by.from == 0 {
		s.valid = false
		return
	}
	for j := i + 1; j < s.n; j++ {
		if w := &s.hints[j]; w.from <= level && w.to>>(16*level) == by.to>>(16*level) {
			w.from = level + 1
		}
	}
}

// Prefetch looks for the ways of these changes, unless they begin where the finger points.
func (s *PathHints) Prefetch(w Writer, t Tree, f *InsertCursor, changes []Change) (err error) {
	s.valid, s.n = false, len(changes)
	if len(changes) < 2 || len(changes) > MaxHints || f.Beyond(changes[0].Key) {
		return nil
	}
	s.valid, err = prefetchPaths(w, t, changes, &s.hints)
	return err
}

// Apply carries out c, the i-th of the changes that were given to Find, and tells of the row that
// was there. Nothing but Apply, and Append of the finger, has changed the tree since. The finger
// learns, as in its Put, and points nowhere after a deletion.
func (s *PathHints) Apply(w Writer, t *Tree, f *InsertCursor, i int, c *Change) (was Info, err error) {
	var by pathHint
	if s.valid {
		by = s.hints[i]
	}
	var reshaped uint8
	if c.Delete {
		was, reshaped, err = remove(w, t, c.Key, c.Value, by)
		if was.Found {
			f.reset()
		}
	} else {
		was, reshaped, err = f.set(w, t, c.Key, c.Value, c.Tag, by)
	}
	if reshaped > 0 && s.valid {
		s.invalidate(i, reshaped)
	}
	return was, err
}
