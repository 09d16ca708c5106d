package txn

import (
	"cmp"
	"slices"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/pager"
	"github.com/ebbkv/ebb/wal"
)

// A version is one state of the store: that of a commit, or the same state republished by
// maintenance. It never changes after its publication.
type version struct {
	serial  uint64      // order of publication; pages know the serial that they were born under
	seq     uint64      // commit number
	base    pager.Epoch // pages of later epochs are in frames, or were spilled
	trees   trees
	mark    int64   // clock mark, milliseconds
	lsn     wal.LSN // end of the commit's record
	syncLSN wal.LSN // durable before this version is visible: end of the newest Sync commit up to it
	nextID  TreeID  // first tree number never used
	trash   uint64  // first trash number never used
	hidden  bool    // must stay invisible until its checkpoint is durable; commitQueue.mu
}

// maxTree bounds the numbers of trees, as the meta page does.
const maxTree TreeID = 1 << 62

// trashBit marks the numbers of dropped trees whose pages are not all freed. They stay in the tree
// table.
const trashBit TreeID = 1 << 63

type treeState struct {
	id    TreeID
	t     tree.Tree
	stamp uint64 // see Tx.Stamp
}

// trees maps tree numbers to roots. Those that changed last are in small, a sorted slice that each
// commit copies; beyond maxSmall of them they move to large, which versions share: chunks of at most
// maxChunk, in order, none of them empty. A chunk never changes. A number in both has the state of
// small.
type trees struct {
	small []treeState
	large [][]treeState
	owned bool // the slice large, not its chunks, is this copy's own, and may change
	n     int  // numbers in small, in large, or in both
}

const (
	maxSmall = 24 // a larger slice costs each commit more than the chunks that are copied now and then
	maxChunk = 64
)

// findSmall returns the tree in small, or nil. Usually it is there, near the front: no search is
// faster.
func (ts *trees) findSmall(id TreeID) *treeState {
	for i := range ts.small {
		if s := &ts.small[i]; s.id == id {
			return s
		}
	}
	return nil
}

func (ts *trees) findLarge(id TreeID) (s treeState, ok bool) {
	i, j, ok := ts.locate(id)
	if ok {
		s = ts.large[i][j]
	}
	return s, ok
}

// locate returns the chunk and the position in it of a number in large.
func (ts *trees) locate(id TreeID) (i, j int, ok bool) {
	lo, hi := 0, len(ts.large) // chunks from hi on begin behind id, those before lo do not
	for lo < hi {
		if mid := (lo + hi) / 2; ts.large[mid][0].id <= id {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == 0 {
		return 0, 0, false
	}
	chunk := ts.large[lo-1]
	if j := uint64(id - chunk[0].id); j < uint64(len(chunk)) && chunk[j].id == id {
		return lo - 1, int(j), true // as a rule no number is missing
	}
	j, ok = slices.BinarySearchFunc(chunk, id, compareTree)
	return lo - 1, j, ok
}

func (ts *trees) get(id TreeID) (tree.Tree, bool) {
	if s := ts.findSmall(id); s != nil {
		return s.t, true
	}
	s, ok := ts.findLarge(id)
	return s.t, ok
}

// find returns the tree with its stamp; the zero value if there is none.
func (ts *trees) find(id TreeID) treeState {
	if s := ts.findSmall(id); s != nil {
		return *s
	}
	s, _ := ts.findLarge(id)
	return s
}

// set and remove are for an unpublished copy.
func (ts *trees) set(s treeState) {
	if at := ts.findSmall(s.id); at != nil {
		*at = s
		return
	}
	if _, ok := ts.findLarge(s.id); !ok {
		ts.n++
	}
	i, _ := slices.BinarySearchFunc(ts.small, s.id, compareTree)
	ts.small = slices.Insert(ts.small, i, s)
	if len(ts.small) > maxSmall {
		ts.large, ts.owned = mergeChunks(ts.large, ts.small), true
		ts.small = ts.small[:0]
	}
}

// mergeChunks returns chunks with the changed states, which are in order. Chunks without one are
// shared with the old ones.
func mergeChunks(old [][]treeState, changed []treeState) (chunks [][]treeState) {
	if len(old) == 0 {
		return [][]treeState{slices.Clone(changed)}
	}
	chunks = make([][]treeState, 0, len(old)+1)
	for i, chunk := range old {
		n := len(changed)
		if i+1 < len(old) {
			n, _ = slices.BinarySearchFunc(changed, old[i+1][0].id, compareTree)
		}
		if n > 0 {
			chunk = mergeStates(chunk, changed[:n])
			changed = changed[n:]
		}
		if half := len(chunk) / 2; len(chunk) > maxChunk {
			chunks = append(chunks, chunk[:half:half])
			chunk = chunk[half:]
		}
		chunks = append(chunks, chunk)
	}
	return chunks
}

func mergeStates(old, changed []treeState) []treeState {
	merged := make([]treeState, 0, len(old)+len(changed))
	for _, s := range changed {
		i, found := slices.BinarySearchFunc(old, s.id, compareTree)
		merged = append(append(merged, old[:i]...), s)
		if found {
			i++
		}
		old = old[i:]
	}
	return append(merged, old...)
}

func compareTree(s treeState, id TreeID) int { return cmp.Compare(s.id, id) }

func (ts *trees) remove(id TreeID) {
	i, inSmall := slices.BinarySearchFunc(ts.small, id, compareTree)
	if inSmall {
		ts.small = slices.Delete(ts.small, i, i+1)
	}
	i, j, inLarge := ts.locate(id)
	if inLarge {
		if !ts.owned { // a transaction may drop thousands of trees
			ts.large, ts.owned = slices.Clone(ts.large), true
		}
		ts.large[i] = slices.Delete(slices.Clone(ts.large[i]), j, j+1)
		if len(ts.large[i]) == 0 {
			ts.large = slices.Delete(ts.large, i, i+1)
		}
	}
	if inSmall || inLarge {
		ts.n--
	}
}

func (ts *trees) len() int { return ts.n }

// copy returns trees that may change independently of ts, with buf for the small ones.
func (ts *trees) copy(buf []treeState) trees {
	if ts.owned { // never of a published version, which readers see
		ts.owned = false
	}
	return trees{small: append(buf, ts.small...), large: ts.large, n: ts.n}
}

// from calls fn for each tree with a number of at least id, in order, until it returns false.
func (ts *trees) from(id TreeID, fn func(TreeID, tree.Tree) bool) {
	i, _ := slices.BinarySearchFunc(ts.small, id, compareTree)
	more := true
	smallBelow := func(end TreeID) {
		for ; more && i < len(ts.small) && ts.small[i].id < end; i++ {
			more = fn(ts.small[i].id, ts.small[i].t)
		}
	}
	first, j, _ := ts.locate(id)
	for _, chunk := range ts.large[min(first, len(ts.large)):] {
		for _, s := range chunk[j:] {
			smallBelow(s.id)
			if more && (i == len(ts.small) || ts.small[i].id != s.id) {
				more = fn(s.id, s.t)
			}
			if !more {
				return
			}
		}
		j = 0
	}
	smallBelow(^TreeID(0))
}

// next returns the first tree with a number of at least id.
func (ts *trees) next(id TreeID) (found TreeID, t tree.Tree, ok bool) {
	ts.from(id, func(i TreeID, at tree.Tree) bool {
		found, t, ok = i, at, true
		return false
	})
	return found, t, ok
}

// firstTrash returns the first dropped tree with pages left, if any.
func (ts *trees) firstTrash() (id TreeID, dropped tree.Tree, ok bool) {
	return ts.next(trashBit)
}
