package btree

import "github.com/ebbkv/ebb/internal/invariant"

// A Change puts a row or deletes one.
type Change struct {
	Key, Value []byte
	Tag        int64 // 0 for none
	// Delete deletes the row. Tag is ignored then, and a Value that is not nil is the inline value
	// that the row must have to be found.
	Delete bool
}

// PathHints are the paths to the leaves of up to MaxHints changes of one tree, which are applied
// one after the other. One batch descent finds them all, and each change follows its own, as far as
// it is still valid.
type PathHints struct {
	valid bool
	n     int
	hints [MaxHints]pathHint
}

// A pathHint is the path from the root of a tree to the leaf of a key: the child to take at each
// level. Copies of pages and changes of leaves keep it valid. When a branch on it gets or loses a
// child or another separator, the hint is invalid from that level down. It fits into registers.
type pathHint struct {
	to   uint64 // 16 bits for each level, those of level 1 are the lowest
	from uint8  // the lowest level with a known child; 0: none
}

// pathHintLevels is the number of branch levels of a hint. Deeper trees get no hints.
const pathHintLevels = 4

// record makes i the child to take at level, the next one below the levels recorded before.
func (w *pathHint) record(level uint8, i int) {
	w.to |= uint64(uint16(i)) << (16 * (level - 1) % 64)
	w.from = level
}

// complete reports whether the hint leads to the leaf.
func (w pathHint) complete() bool { return w.from == 1 }

// child returns the child of a branch of n children at level that may hold key.
func (w pathHint) child(b []byte, n int, level uint8, key []byte) int {
	i := int(uint16(w.to >> (16 * (level - 1) % 64)))
	if level < w.from || w.from == 0 || i >= n {
		return branchSearch(b, n, key)
	}
	if invariant.On && i != branchSearch(b, n, key) {
		invariant.Fail("btree: hint of %x to child %d of %d at level %d", key, i, n, level)
	}
	return i
}

// invalidate says that the i-th change has changed a branch at level on its path, and perhaps
// others on the path below. Hints through that branch stay valid only above it. If hint i is
// unknown at level and above, so are the hints that shared it there: the same invalidation has
// reached them.
func (s *PathHints) invalidate(i int, level uint8) {
	hint := &s.hints[i]
	if hint.from == 0 {
		s.valid = false
		return
	}
	for j := i + 1; j < s.n; j++ {
		if w := &s.hints[j]; w.from <= level && w.to>>(16*level) == hint.to>>(16*level) {
			w.from = level + 1
		}
	}
}

// Prefetch finds the paths of these changes, unless they are beyond the insert cursor's leaf.
func (s *PathHints) Prefetch(w Writer, t Tree, f *InsertCursor, changes []Change) (err error) {
	s.valid, s.n = false, len(changes)
	if len(changes) < 2 || len(changes) > MaxHints || f.Beyond(changes[0].Key) {
		return nil
	}
	s.valid, err = prefetchPaths(w, t, changes, &s.hints)
	return err
}

// Apply applies c, the i-th of the changes that Prefetch got, and returns the Info of the old row.
// Since Prefetch only Apply, and Append of the insert cursor, may have changed the tree. The insert
// cursor is updated as by its Put; a deletion resets it.
func (s *PathHints) Apply(w Writer, t *Tree, f *InsertCursor, i int, c *Change) (was Info, err error) {
	var hint pathHint
	if s.valid {
		hint = s.hints[i]
	}
	var highestChanged uint8
	if c.Delete {
		was, highestChanged, err = remove(w, t, c.Key, c.Value, hint)
		if was.Found {
			f.reset()
		}
	} else {
		was, highestChanged, err = f.set(w, t, c.Key, c.Value, c.Tag, hint)
	}
	if highestChanged > 0 && s.valid {
		s.invalidate(i, highestChanged)
	}
	return was, err
}
