package btree

import "github.com/ebbkv/ebb/internal/invariant"

// A Change puts a row or deletes one.
type Change struct {
	Key, Value []byte
	Tag        int64 // 0 for none
	// Delete deletes. Tag means nothing then, and Value is, unless nil, the one that the row must have to be found: it stands in its
	// page.
	Delete bool
}

// Ways are the ways down to the leaves of up to MaxWays changes of one tree, which are carried out one after the other. They are
// looked for together, and each change goes its own as long as they hold.
type Ways struct {
	hold bool
	of   [MaxWays]way
}

// A way is how to come from the root of a tree to the leaf where a key is or belongs: the child to take at each level. It holds,
// whatever is copied or changes in leaves, until a branch gets or loses a child or another separator. It is small enough to be handed
// on in registers.
type way struct {
	to    uint64 // 16 bits for each level, those of level 1 are the lowest
	known bool   // else it is to be looked for
}

// wayLevels is how many levels of branches a way leads through. In a tree that is deeper no way is noted.
const wayLevels = 4

// note makes i the child to take at level, for which none was noted before.
func (w *way) note(level uint8, i int) {
	w.to |= uint64(uint16(i)) << (16 * (level - 1) % 64)
	w.known = true
}

// child returns the child of a branch of n children at level that may hold key.
func (w way) child(b []byte, n int, level uint8, key []byte) int {
	i := int(uint16(w.to >> (16 * (level - 1) % 64)))
	if !w.known || i >= n {
		return branchSearch(b, n, key)
	}
	if invariant.On && i != branchSearch(b, n, key) {
		invariant.Fail("btree: way of %x to child %d of %d at level %d", key, i, n, level)
	}
	return i
}

// Find looks for the ways of these changes, unless they begin where the finger points.
func (s *Ways) Find(r Reader, t Tree, f *Finger, changes []Change) (err error) {
	s.hold = false
	if len(changes) < 2 || len(changes) > MaxWays || f.Beyond(changes[0].Key) {
		return nil
	}
	var keys [MaxWays][]byte
	for i := range changes {
		keys[i] = changes[i].Key
	}
	s.hold, err = warm(r, t, keys[:len(changes)], &s.of)
	return err
}

// Apply carries out c, the i-th of the changes that were given to Find, and tells of the row that was there. Nothing but Apply has
// changed the tree since. The finger learns, as in its Put, and points nowhere after a deletion.
func (s *Ways) Apply(w Writer, t *Tree, f *Finger, i int, c *Change) (was Info, err error) {
	var by way
	if s.hold {
		by = s.of[i]
	}
	reshaped := false
	if c.Delete {
		was, reshaped, err = remove(w, t, c.Key, c.Value, by)
		if was.Found {
			*f = Finger{}
		}
	} else {
		was, reshaped, err = f.set(w, t, c.Key, c.Value, c.Tag, by)
	}
	if reshaped {
		s.hold = false
	}
	return was, err
}
